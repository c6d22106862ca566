#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/roof.h"
#include "bindings.h"
#include "tiers/tiers.h"

namespace nb = nanobind;

namespace fucina::bindings {

void bind_cpu(nb::module_& m) {
  m.def(
      "tiers",
      [] {
        std::vector<std::pair<std::string, bool>> found;
        for (const Tier& tier : all_tiers()) found.emplace_back(tier.kernels->name, tier.runs_here);
        return found;
      },
      "Every instruction tier of this build, slowest first, and whether this processor can run it.");
  m.def("read_bandwidth", &read_bandwidth, nb::arg("n_bytes"), nb::arg("threads"), nb::arg("repeats") = 5,
        nb::call_guard<nb::gil_scoped_release>(),
        "Bytes per second read from memory by `threads` threads, best of `repeats`.");
}

}  // namespace fucina::bindings
