// y = x W^T over packed tiles: the loops around the register tiles, for every format.
#pragma once

#include "kernels/tiles.h"

namespace fucina {

// Rows whose quantized form stays in the second-level cache while the tiles pass by.
constexpr int kRowsPerSweep = 64;

template <class V>
FUCINA_INLINE void finish(const LinearArgs& a, int row, int column, int columns, typename V::F y) {
  float* out = a.out + row * a.out_stride + column;
  if (columns == 8) {
    if (a.bias) y = V::add(y, V::load(a.bias + column));
    if (a.accumulate) y = V::add(V::load(out), y);
    V::store(out, y);
    return;
  }
  float lanes[8];
  V::store(lanes, y);
  for (int c = 0; c < columns; c++) {
    float value = lanes[c];
    if (a.bias) value = value + a.bias[column + c];
    out[c] = a.accumulate ? out[c] + value : value;
  }
}

FUCINA_INLINE RowView32 view_from(const LinearArgs& a, int row, RowView32*) {
  const std::size_t d_in = a.d_in, blocks = a.d_in / 32;
  const Rows32& x = a.rows32;
  return {x.q + row * d_in, x.d + row * blocks, x.d_sum + row * blocks, x.sum + row * blocks, d_in, blocks};
}

FUCINA_INLINE RowView256 view_from(const LinearArgs& a, int row, RowView256*) {
  const std::size_t d_in = a.d_in;
  const Rows256& x = a.rows256;
  return {x.q + row * d_in, x.d + row * (d_in / 256), x.sum16 + row * (d_in / 16), x.sum32 + row * (d_in / 32), d_in};
}

template <class V, class Tile, int M>
FUCINA_INLINE void block_rows(const LinearArgs& a, const std::uint8_t* tile, int row, int column, int columns) {
  typename V::F y[M];
  Tile::template dot<V, M>(tile, a.d_in / Tile::kBlock, view_from(a, row, static_cast<typename Tile::View*>(nullptr)),
                           y);
  for (int m = 0; m < M; m++) finish<V>(a, row + m, column, columns, y[m]);
}

template <class V, class Tile>
void linear_blocks(const LinearArgs& a, int begin, int end) {
  const std::size_t tile_bytes = static_cast<std::size_t>(a.d_in / Tile::kBlock) * Tile::kBytes;
  for (int first = 0; first < a.rows; first += kRowsPerSweep) {
    const int last = a.rows < first + kRowsPerSweep ? a.rows : first + kRowsPerSweep;
    for (int t = begin; t < end; t++) {
      const std::uint8_t* tile = a.weights + t * tile_bytes;
      const int column = t * kColumns;
      const int columns = a.d_out - column < kColumns ? a.d_out - column : kColumns;
      int row = first;
      for (; row + 4 <= last; row += 4) block_rows<V, Tile, 4>(a, tile, row, column, columns);
      for (; row + 2 <= last; row += 2) block_rows<V, Tile, 2>(a, tile, row, column, columns);
      if (row < last) block_rows<V, Tile, 1>(a, tile, row, column, columns);
    }
  }
}

// Float tiles: 32 columns, one after the other for each k: [k][32]. One fma chain per output over k ascending.
constexpr int kFloatColumns = 32;

struct PlainF32 {
  using Element = float;
  template <class V>
  FUCINA_INLINE typename V::F load(const Element* p) {
    return V::load(p);
  }
};
struct PlainF16 {
  using Element = std::uint16_t;
  template <class V>
  FUCINA_INLINE typename V::F load(const Element* p) {
    return V::load_half(p);
  }
};
struct PlainBF16 {
  using Element = std::uint16_t;
  template <class V>
  FUCINA_INLINE typename V::F load(const Element* p) {
    return V::load_bfloat(p);
  }
};

template <class V, class Plain, int M>
FUCINA_INLINE void float_rows(const LinearArgs& a, const typename Plain::Element* tile, int row, int column,
                              int columns) {
  typename V::F acc[M][4];
  for (int m = 0; m < M; m++) {
    for (int j = 0; j < 4; j++) acc[m][j] = V::zero();
  }
  const float* x = a.x + static_cast<std::size_t>(row) * a.d_in;
  for (int k = 0; k < a.d_in; k++, tile += kFloatColumns) {
    for (int j = 0; j < 4; j++) {
      const auto w = Plain::template load<V>(tile + 8 * j);
      for (int m = 0; m < M; m++) acc[m][j] = V::fma(w, V::set(x[static_cast<std::size_t>(m) * a.d_in + k]), acc[m][j]);
    }
  }
  for (int m = 0; m < M; m++) {
    for (int j = 0; j < 4 && 8 * j < columns; j++) {
      finish<V>(a, row + m, column + 8 * j, columns - 8 * j < 8 ? columns - 8 * j : 8, acc[m][j]);
    }
  }
}

template <class V, class Plain>
void linear_floats(const LinearArgs& a, int begin, int end) {
  const std::size_t tile_elements = static_cast<std::size_t>(a.d_in) * kFloatColumns;
  const auto* weights = reinterpret_cast<const typename Plain::Element*>(a.weights);
  for (int t = begin; t < end; t++) {
    const int column = t * kFloatColumns;
    const int columns = a.d_out - column < kFloatColumns ? a.d_out - column : kFloatColumns;
    int row = 0;
    for (; row + 3 <= a.rows; row += 3) {
      float_rows<V, Plain, 3>(a, weights + t * tile_elements, row, column, columns);
    }
    for (; row < a.rows; row++) float_rows<V, Plain, 1>(a, weights + t * tile_elements, row, column, columns);
  }
}

using TileQ4_0 = Small<RawQ4_0, false, false, 8>;
using TileQ4_1 = Small<RawQ4_1, false, true, 0>;
using TileQ5_0 = Small<RawQ5_0, true, false, 16>;
using TileQ5_1 = Small<RawQ5_1, true, true, 0>;
using TileQ4_K = KFour<RawQ4_K, false>;
using TileQ5_K = KFour<RawQ5_K, true>;

template <class V>
void linear(const LinearArgs& a, int begin, int end) {
  switch (a.format) {
    case Format::F32:
      return linear_floats<V, PlainF32>(a, begin, end);
    case Format::F16:
      return linear_floats<V, PlainF16>(a, begin, end);
    case Format::BF16:
      return linear_floats<V, PlainBF16>(a, begin, end);
    case Format::Q4_0:
      return linear_blocks<V, TileQ4_0>(a, begin, end);
    case Format::Q4_1:
      return linear_blocks<V, TileQ4_1>(a, begin, end);
    case Format::Q5_0:
      return linear_blocks<V, TileQ5_0>(a, begin, end);
    case Format::Q5_1:
      return linear_blocks<V, TileQ5_1>(a, begin, end);
    case Format::Q8_0:
      return linear_blocks<V, Eight>(a, begin, end);
    case Format::Q4_K:
      return linear_blocks<V, TileQ4_K>(a, begin, end);
    case Format::Q5_K:
      return linear_blocks<V, TileQ5_K>(a, begin, end);
    case Format::Q6_K:
      return linear_blocks<V, KSix>(a, begin, end);
    default:
      return;  // read from raw rows (tiers/raw.h)
  }
}

}  // namespace fucina
