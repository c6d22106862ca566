// The tiers of the kernels' test where the instructions that this processor lacks are emulated (immintrin.h here).
#include "tiers/tiers.h"

namespace fucina {

std::vector<Tier> all_tiers() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return {{&scalar_kernels(), true}, {&avxvnni_kernels(), avx2}, {&avx512_kernels(), avx2}};
}

}  // namespace fucina
