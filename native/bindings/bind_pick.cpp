#include "bindings.h"

namespace fucina::bindings {

void bind_pick(nanobind::module_&) {}

}  // namespace fucina::bindings
