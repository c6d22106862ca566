// The portable tier: whatever the compiler's default for the architecture allows.
#include "simd/generic.h"
#include "tiers/lane_kernels.h"
#include "tiers/tiers.h"

namespace fucina {

const Kernels& baseline_kernels() {
  static constexpr Kernels kernels = lane_kernels<Generic>("baseline");
  return kernels;
}

}  // namespace fucina
