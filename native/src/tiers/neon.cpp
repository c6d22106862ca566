// 64-bit ARM with what every such processor has.
#include "simd/neon.h"

#include "tiers/lane_kernels.h"
#include "tiers/tiers.h"

namespace fucina {

const Kernels& neon_kernels() {
  static constexpr Kernels kernels = lane_kernels<Neon>("neon");
  return kernels;
}

}  // namespace fucina
