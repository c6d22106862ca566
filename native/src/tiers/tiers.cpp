#include "tiers/tiers.h"

#include <stdexcept>

namespace fucina {

std::vector<Tier> all_tiers() {
  std::vector<Tier> tiers{{&scalar_kernels(), true}, {&baseline_kernels(), true}};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  tiers.push_back({&avx2_kernels(), avx2});
#endif
  return tiers;
}

const Kernels& choose_tier(const std::string& name) {
  const Kernels* best = nullptr;
  std::string choices;
  for (const Tier& tier : all_tiers()) {
    if (!tier.runs_here) continue;
    if (tier.kernels->name == name) return *tier.kernels;
    choices += (choices.empty() ? "" : ", ") + std::string(tier.kernels->name);
    best = tier.kernels;
  }
  if (!name.empty()) {
    throw std::invalid_argument("instruction tier '" + name + "' does not run here; tiers that do: " + choices);
  }
  return *best;
}

}  // namespace fucina
