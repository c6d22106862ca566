// y = x W^T over packed tiles: the loops around the register tiles, for every format.
#pragma once

#include "kernels/tiles.h"

namespace fucina {

// Rows whose quantized form stays in the second-level cache while the tiles pass by.
constexpr int kRowsPerSweep = 64;

// The last columns of a weight, fewer than lanes. A function of its own: inlined at every use, it was most of the code.
template <class V>
[[gnu::noinline]] void finish_part(const LinearArgs& a, int row, int column, int columns, const float* lanes) {
  float* out = a.out + row * a.out_stride + column;
  for (int c = 0; c < columns; c++) {
    float value = lanes[c];
    if (a.bias) value = value + a.bias[column + c];
    out[c] = a.accumulate ? out[c] + value : value;
  }
}

// One row's results for a tile's columns: bias, then accumulation, then the store.
template <class V>
FUCINA_INLINE void finish(const LinearArgs& a, int row, int column, int columns, typename V::F y) {
  if (columns < V::kColumns) {
    float lanes[V::kColumns];
    V::store(lanes, y);
    return finish_part<V>(a, row, column, columns, lanes);
  }
  float* out = a.out + row * a.out_stride + column;
  if (a.bias) y = V::add(y, V::load(a.bias + column));
  if (a.accumulate) y = V::add(V::load(out), y);
  V::store(out, y);
}

FUCINA_INLINE Rows32 rows_of(const LinearArgs& a, Rows32*) { return a.rows32; }
FUCINA_INLINE Rows256 rows_of(const LinearArgs& a, Rows256*) { return a.rows256; }

// One tile with the M rows of a row block. A function of its own: all of them in one would take compilers minutes.
template <class V, class Tile, int M>
[[gnu::noinline]] void multiply_block(const LinearArgs& a, const std::uint8_t* tile, RowBlock block, int column) {
  typename V::F y[M];
  const auto rows = at_row(rows_of(a, static_cast<typename Tile::Rows*>(nullptr)), a.d_in, block, 0);
  Tile::template dot<V, M>(tile, a.d_in / Tile::kBlock, rows, y);
  unroll<M>(FUCINA_EACH(m) { finish<V>(a, block.first + m, column, a.d_out - column, y[m]); });
}

template <class V, class Tile>
void linear_blocks(const LinearArgs& a, int begin, int end) {
  const std::size_t tile_bytes = tile_size<Tile>(a.d_in, V::kColumns);
  const int blocks = row_blocks(a.rows, V::kRows), at_once = kRowsPerSweep / V::kRows;
  for (int first = 0; first < blocks; first += at_once) {
    const int last = blocks < first + at_once ? blocks : first + at_once;
    for (int t = begin; t < end; t++) {
      for (int i = first; i < last; i++) {
        const RowBlock block = row_block(a.rows, V::kRows, i);
        with_count<V::kRows>(
            block.rows,
            FUCINA_EACH(M) { multiply_block<V, Tile, M>(a, a.weights + t * tile_bytes, block, t * V::kColumns); });
      }
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

// The M rows of a row block with `vectors` vectors of a tile's columns.
template <class V, class Plain, int M, int vectors>
FUCINA_INLINE void float_columns(const LinearArgs& a, const typename Plain::Element* tile, const float* x,
                                 RowBlock block, int column) {
  typename V::F acc[M][vectors];
  unroll<M>(FUCINA_EACH(m) { unroll<vectors>(FUCINA_EACH(j) { acc[m][j] = V::zero(); }); });
  for (int k = 0; k < a.d_in; k++, tile += kFloatColumns, x += M) {
    // Whichever are fewer stay in registers: activations or weights.
    typename V::F fixed[M < vectors ? M : vectors];
    if constexpr (M < vectors) {
      unroll<M>(FUCINA_EACH(m) { fixed[m] = V::set(x[m]); });
      unroll<vectors>(FUCINA_EACH(j) {
        const auto w = Plain::template load<V>(tile + V::kColumns * j);
        unroll<M>(FUCINA_EACH(m) { acc[m][j] = V::fma(w, fixed[m], acc[m][j]); });
      });
    } else {
      unroll<vectors>(FUCINA_EACH(j) { fixed[j] = Plain::template load<V>(tile + V::kColumns * j); });
      unroll<M>(FUCINA_EACH(m) {
        const auto activation = V::set(x[m]);
        unroll<vectors>(FUCINA_EACH(j) { acc[m][j] = V::fma(fixed[j], activation, acc[m][j]); });
      });
    }
  }
  unroll<M>(FUCINA_EACH(m) {
    unroll<vectors>(FUCINA_EACH(j) {
      const int first = column + V::kColumns * j;
      if (first < a.d_out) finish<V>(a, block.first + m, first, a.d_out - first, acc[m][j]);
    });
  });
}

// One tile with the M rows of a row block, in as many columns at a time as the registers have sums for.
template <class V, class Plain, int M>
[[gnu::noinline]] void float_block(const LinearArgs& a, const typename Plain::Element* tile, RowBlock block,
                                   int column) {
  constexpr int vectors = V::float_vectors(M);
  const float* x = a.x + static_cast<std::size_t>(block.first) * a.d_in;
  for (int c = 0; c < kFloatColumns; c += vectors * V::kColumns) {
    float_columns<V, Plain, M, vectors>(a, tile + c, x, block, column + c);
  }
}

template <class V, class Plain>
void linear_floats(const LinearArgs& a, int begin, int end) {
  const std::size_t tile_elements = static_cast<std::size_t>(a.d_in) * kFloatColumns;
  const auto* weights = reinterpret_cast<const typename Plain::Element*>(a.weights);
  for (int t = begin; t < end; t++) {
    for (int i = 0; i < row_blocks(a.rows, V::kRows); i++) {
      const RowBlock block = row_block(a.rows, V::kRows, i);
      with_count<V::kRows>(
          block.rows,
          FUCINA_EACH(M) { float_block<V, Plain, M>(a, weights + t * tile_elements, block, t * kFloatColumns); });
    }
  }
}

template <class V>
void linear(const LinearArgs& a, int begin, int end) {
  switch (a.format) {
    case Format::F32:
      return linear_floats<V, PlainF32>(a, begin, end);
    case Format::F16:
      return linear_floats<V, PlainF16>(a, begin, end);
    case Format::BF16:
      return linear_floats<V, PlainBF16>(a, begin, end);
    default:
      return with_tile(a.format, [&]<class Tile>() { linear_blocks<V, Tile>(a, begin, end); });
  }
}

}  // namespace fucina
