// AVX2 with AVX-VNNI; compiled with those flags and called only where the processor has them.
#include "simd/avxvnni.h"

#include "tiers/lane_kernels.h"
#include "tiers/tiers.h"

namespace fucina {

const Kernels& avxvnni_kernels() {
  static constexpr Kernels kernels = lane_kernels<AvxVnni>("avxvnni");
  return kernels;
}

}  // namespace fucina
