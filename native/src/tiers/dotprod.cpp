// 64-bit ARM with the int8 dot products; compiled with that flag and called only where the processor has them.
#include "simd/neon.h"
#include "tiers/lane_kernels.h"
#include "tiers/tiers.h"

namespace fucina {

const Kernels& dotprod_kernels() {
  static constexpr Kernels kernels = lane_kernels<NeonDot>("dotprod");
  return kernels;
}

}  // namespace fucina
