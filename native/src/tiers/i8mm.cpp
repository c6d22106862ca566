// 64-bit ARM with the int8 matrix products; compiled with those flags and called only where the processor has them.
#include "simd/neon.h"
#include "tiers/lane_kernels.h"
#include "tiers/tiers.h"

namespace fucina {

const Kernels& i8mm_kernels() {
  static constexpr Kernels kernels = lane_kernels<NeonMatrix>("i8mm");
  return kernels;
}

}  // namespace fucina
