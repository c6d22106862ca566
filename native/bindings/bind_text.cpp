#include "bindings.h"

namespace fucina::bindings {

void bind_text(nanobind::module_&) {}

}  // namespace fucina::bindings
