// Which instruction tiers this build has, which this processor can run, and the table of each.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace fucina {

struct Tier {
  const Kernels* kernels;
  bool runs_here;
};

// Slowest first: the scalar oracle, the portable baseline, then whatever this build has for the architecture.
std::vector<Tier> all_tiers();

// The tier of that name, or the fastest that runs here when the name is empty.
// Throws std::invalid_argument naming the choices when the tier is unknown or this processor cannot run it.
const Kernels& choose_tier(const std::string& name);

const Kernels& scalar_kernels();
const Kernels& baseline_kernels();
#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avxvnni_kernels();
const Kernels& avx512_kernels();
#elif defined(__aarch64__)
const Kernels& neon_kernels();
const Kernels& dotprod_kernels();
const Kernels& i8mm_kernels();
#endif

}  // namespace fucina
