// AVX2 with FMA and F16C; compiled with those flags and called only where the processor has them.
#include "simd/avx2.h"

#include "tiers/lane_kernels.h"
#include "tiers/tiers.h"

namespace fucina {

const Kernels& avx2_kernels() {
  static constexpr Kernels kernels = lane_kernels<Avx2>("avx2");
  return kernels;
}

}  // namespace fucina
