#include "tiers/tiers.h"

#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace fucina {

#if defined(__x86_64__)
namespace {

// Not every compiler's __builtin_cpu_supports knows this name. It needs no more of the operating system than AVX2.
bool has_avxvnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4));
}

}  // namespace
#elif defined(__aarch64__)
namespace {

struct ArmFeatures {
  bool dotprod = false, i8mm = false;
};

#if defined(__linux__)
ArmFeatures arm_features() {
  return {(getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0, (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0};
}
#elif defined(__APPLE__)
bool has_feature(const char* name) {
  int value = 0;
  std::size_t value_bytes = sizeof value;
  return sysctlbyname(name, &value, &value_bytes, nullptr, 0) == 0 && value != 0;
}
ArmFeatures arm_features() {
  return {has_feature("hw.optional.arm.FEAT_DotProd"), has_feature("hw.optional.arm.FEAT_I8MM")};
}
#else
ArmFeatures arm_features() { return {}; }
#endif

}  // namespace
#endif

std::vector<Tier> all_tiers() {
  std::vector<Tier> tiers{{&scalar_kernels(), true}, {&baseline_kernels(), true}};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  tiers.push_back({&avx2_kernels(), avx2});
#if defined(FUCINA_HAS_AVXVNNI)
  tiers.push_back({&avxvnni_kernels(), avx2 && has_avxvnni()});
#endif
#if defined(FUCINA_HAS_AVX512)
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  tiers.push_back({&avx512_kernels(), avx2 && avx512});
#endif
#elif defined(__aarch64__)
  const ArmFeatures features = arm_features();
  tiers.push_back({&neon_kernels(), true});
  tiers.push_back({&dotprod_kernels(), features.dotprod});
  tiers.push_back({&i8mm_kernels(), features.dotprod && features.i8mm});
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
