// One function per domain; module.cpp calls them all. Bindings know no arithmetic.
#pragma once

#include <nanobind/nanobind.h>

namespace fucina::bindings {

void bind_cpu(nanobind::module_& m);
void bind_ops(nanobind::module_& m);
void bind_experts(nanobind::module_& m);
void bind_text(nanobind::module_& m);
void bind_pick(nanobind::module_& m);
void bind_draft(nanobind::module_& m);

}  // namespace fucina::bindings
