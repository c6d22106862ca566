#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

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
  m.def(
      "multiply_adds",
      [](int mix, int threads, const std::string& tier, int repeats) {
        const Kernels& kernels = choose_tier(tier);
        if (!kernels.multiply_adds) throw std::invalid_argument(std::string(kernels.name) + " has no fast products");
        const auto work = [&](long rounds) { return kernels.multiply_adds(static_cast<Mix>(mix), rounds); };
        return work_rate(work, threads, repeats);
      },
      nb::arg("mix"), nb::arg("threads"), nb::arg("tier") = "", nb::arg("repeats") = 3,
      nb::call_guard<nb::gil_scoped_release>(),
      "Multiply-adds per second of a kind of instructions (Mix, kernels/kernels.h) by `threads` threads.");
}

}  // namespace fucina::bindings
