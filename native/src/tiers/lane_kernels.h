// The table of a tier, filled from the templates with that tier's lanes.
#pragma once

#include "kernels/attend.h"
#include "kernels/linear.h"
#include "kernels/roof.h"
#include "kernels/rows.h"

namespace fucina {

template <class V>
constexpr Kernels lane_kernels(const char* name) {
  return {
      .name = name,
      .columns = V::kColumns,
      .eights = takes_eights<V>,
      .rows = V::kRows,
      .linear = linear<V>,
      .rms_norm = rms_norm<V>,
      .gate_silu = gate_silu<V>,
      .gate_gelu = gate_gelu<V>,
      .add = add_row<V>,
      .quantize32 = quantize32<V>,
      .quantize256 = quantize256<V>,
      .rotate = rotate<V>,
      .store_kv = store_kv<V>,
      .attend = attend<V>,
      .gather = gather<V>,
      .multiply_adds = multiply_adds<V>,
  };
}

}  // namespace fucina
