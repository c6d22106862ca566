// AVX-512 (F, BW, DQ, VL) with VNNI; compiled with those flags and called only where the processor has them.
#include "simd/avx512.h"

#include "tiers/lane_kernels.h"
#include "tiers/tiers.h"

namespace fucina {

const Kernels& avx512_kernels() {
  static constexpr Kernels kernels = lane_kernels<Avx512, Avx512Rows>("avx512");
  return kernels;
}

}  // namespace fucina
