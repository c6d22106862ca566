// The table of a tier, filled from the templates with that tier's lanes.
#pragma once

#include "kernels/attend.h"
#include "kernels/linear.h"
#include "kernels/roof.h"
#include "kernels/rows.h"

namespace fucina {

// V: the lanes of products. R, of eight f32: those of everything else.
template <class V, class R = V>
constexpr Kernels lane_kernels(const char* name) {
  return {
      .name = name,
      .columns = V::kColumns,
      .eights = takes_eights<V>,
      .rows = V::kRows,
      .linear = linear<V>,
      .rms_norm = rms_norm<R>,
      .gate_silu = gate_silu<R>,
      .gate_gelu = gate_gelu<R>,
      .add = add_row<R>,
      .add_scaled = add_scaled<R>,
      .softmax = softmax<R>,
      .quantize32 = quantize32<R>,
      .quantize256 = quantize256<R>,
      .rotate = rotate<R>,
      .store_kv = store_kv<R>,
      .attend = attend<R>,
      .gather = gather<R>,
      .multiply_adds = multiply_adds<V>,
  };
}

}  // namespace fucina
