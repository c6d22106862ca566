// Packed weights: eight output columns interleaved, so that one vector of weight bytes meets four broadcast activation
// bytes.
//
// Inside a block everything is integer and therefore exact in any order; across blocks there is one f32 fma chain per
// output, blocks ascending. Nibble vectors hold group `low` in their low and group `high` in their high nibbles, where
// group g is weights 4g .. 4g+3 of the block; lane 4c + i of a vector belongs to column c.
#pragma once

#include <cstring>

#include "formats/elements.h"
#include "kernels/kernels.h"

namespace fucina {

constexpr int kColumns = 8;

// The rows of one register tile, seen from one block on.
struct RowView32 {
  const std::int8_t* q;
  const float* d;
  const float* d_sum;
  const std::int32_t* sum;
  std::size_t q_stride, block_stride;
};
struct RowView256 {
  const std::int8_t* q;
  const float* d;
  const std::int16_t* sum16;
  const std::int16_t* sum32;
  std::size_t q_stride;
};

template <class Raw>
FUCINA_INLINE void pack_nibbles(const Raw* const* columns, int vectors, int (*low)(int), int (*high)(int),
                                std::uint8_t* out) {
  for (int v = 0; v < vectors; v++) {
    for (int c = 0; c < kColumns; c++) {
      for (int i = 0; i < 4; i++) {
        const int a = element(*columns[c], 4 * low(v) + i) & 15, b = element(*columns[c], 4 * high(v) + i) & 15;
        out[32 * v + 4 * c + i] = static_cast<std::uint8_t>(a | b << 4);
      }
    }
  }
}

// Bits 4 and up of the groups first_group .. first_group + 8 / bits - 1, `bits` each, into one vector.
template <int bits, class Raw>
FUCINA_INLINE void pack_high_bits(const Raw* const* columns, int first_group, std::uint8_t* out) {
  for (int c = 0; c < kColumns; c++) {
    for (int i = 0; i < 4; i++) {
      int byte = 0;
      for (int g = 0; g < 8 / bits; g++) byte |= (element(*columns[c], 4 * (first_group + g) + i) >> 4) << (bits * g);
      out[4 * c + i] = static_cast<std::uint8_t>(byte);
    }
  }
}

FUCINA_INLINE const std::uint16_t* halves_at(const std::uint8_t* p) {
  return reinterpret_cast<const std::uint16_t*>(p);
}

template <class Raw, std::uint16_t Raw::* member>
FUCINA_INLINE void pack_halves(const Raw* const* columns, std::uint8_t* out) {
  for (int c = 0; c < kColumns; c++) std::memcpy(out + 2 * c, &(columns[c]->*member), 2);
}

// Value vectors of a 32-weight block for groups p and p + 4.
template <class V, bool five>
struct NibblePair {
  typename V::U8 low, high;
  template <int p>
  FUCINA_INLINE NibblePair at(const std::uint8_t* qs, [[maybe_unused]] const std::uint8_t* qh) {
    const auto packed = V::load_u8(qs + 32 * p);
    NibblePair pair{V::low_nibbles(packed), V::high_nibbles(packed)};
    if constexpr (five) {
      const auto bits = V::load_u8(qh);
      pair.low = V::either(pair.low, V::template bits_to_4<p, 1>(bits));
      pair.high = V::either(pair.high, V::template bits_to_4<p + 4, 1>(bits));
    }
    return pair;
  }
};

// Q4_0, Q4_1, Q5_0, Q5_1: [d f16 x8][m f16 x8 if minimum][qh 32 if five][qs 4 x 32]
template <class RawBlock, bool five, bool minimum, int offset>
struct Small {
  using Raw = RawBlock;
  using View = RowView32;
  static constexpr int kBlock = 32;
  static constexpr int kMinimumAt = 16;
  static constexpr int kHighAt = minimum ? 32 : 16;
  static constexpr int kNibblesAt = kHighAt + (five ? 32 : 0);
  static constexpr int kBytes = kNibblesAt + 128;

  static void pack(const Raw* const* columns, std::uint8_t* out) {
    pack_halves<Raw, &Raw::d>(columns, out);
    if constexpr (minimum) pack_halves<Raw, &Raw::m>(columns, out + kMinimumAt);
    if constexpr (five) pack_high_bits<1>(columns, 0, out + kHighAt);
    pack_nibbles(columns, 4, [](int v) { return v; }, [](int v) { return v + 4; }, out + kNibblesAt);
  }

  // Sixteen-bit sums hold: 8 groups x 2 x 15 x 127 = 30,480; with five bits 4 groups x 2 x 31 x 127 = 31,496.
  template <class V, int M>
  FUCINA_INLINE void dot(const std::uint8_t* tile, int n_blocks, View x, typename V::F* y) {
    typename V::F acc[M], acc_min[M];
    for (int m = 0; m < M; m++) acc[m] = acc_min[m] = V::zero();
    for (int b = 0; b < n_blocks; b++, tile += kBytes) {
      typename V::I16 low[M], high[M];
      for (int m = 0; m < M; m++) low[m] = high[m] = V::zero_i16();
      const auto groups = [&]<int p>() __attribute__((always_inline)) {
        const auto w = NibblePair<V, five>::template at<p>(tile + kNibblesAt, tile + kHighAt);
        for (int m = 0; m < M; m++) {
          const std::int8_t* q = x.q + m * x.q_stride + 32 * b + 4 * p;
          low[m] = V::add(low[m], V::dot_bytes(w.low, q));
          if constexpr (five) {
            high[m] = V::add(high[m], V::dot_bytes(w.high, q + 16));
          } else {
            low[m] = V::add(low[m], V::dot_bytes(w.high, q + 16));
          }
        }
      };
      groups.template operator()<0>();
      groups.template operator()<1>();
      groups.template operator()<2>();
      groups.template operator()<3>();
      const auto d = V::load_half(halves_at(tile));
      for (int m = 0; m < M; m++) {
        const std::size_t at = m * x.block_stride + b;
        auto sum = V::sum_pairs(low[m]);
        if constexpr (five) sum = V::add(sum, V::sum_pairs(high[m]));
        if constexpr (offset != 0) sum = V::sub(sum, V::set_i32(offset * x.sum[at]));
        acc[m] = V::fma(V::mul(d, V::set(x.d[at])), V::to_float(sum), acc[m]);
        if constexpr (minimum) {
          acc_min[m] = V::fma(V::load_half(halves_at(tile + kMinimumAt)), V::set(x.d_sum[at]), acc_min[m]);
        }
      }
    }
    for (int m = 0; m < M; m++) y[m] = minimum ? V::add(acc[m], acc_min[m]) : acc[m];
  }
};

// Q8_0: [d f16 x8][q 8 x 32]
struct Eight {
  using Raw = RawQ8_0;
  using View = RowView32;
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 16 + 256;

  static void pack(const Raw* const* columns, std::uint8_t* out) {
    pack_halves<Raw, &Raw::d>(columns, out);
    for (int g = 0; g < 8; g++) {
      for (int c = 0; c < kColumns; c++) std::memcpy(out + 16 + 32 * g + 4 * c, columns[c]->qs + 4 * g, 4);
    }
  }

  template <class V, int M>
  FUCINA_INLINE void dot(const std::uint8_t* tile, int n_blocks, View x, typename V::F* y) {
    for (int m = 0; m < M; m++) y[m] = V::zero();
    for (int b = 0; b < n_blocks; b++, tile += kBytes) {
      typename V::I32 sum[M];
      for (int m = 0; m < M; m++) sum[m] = V::zero_i32();
      for (int g = 0; g < 8; g++) {
        const auto w = V::load_signed(tile + 16 + 32 * g);
        for (int m = 0; m < M; m++) {
          sum[m] = V::add(sum[m], V::dot_signed(w, x.q + m * x.q_stride + 32 * b + 4 * g));
        }
      }
      const auto d = V::load_half(halves_at(tile));
      for (int m = 0; m < M; m++) {
        const auto scale = V::mul(d, V::set(x.d[m * x.block_stride + b]));
        y[m] = V::fma(scale, V::to_float(sum[m]), y[m]);
      }
    }
  }
};

// Q4_K, Q5_K: [d f16 x8][dmin f16 x8][scales 8 x 8][minima 8 x 8][qh 8 x 32 if five][qs 32 x 32]
template <class RawBlock, bool five>
struct KFour {
  using Raw = RawBlock;
  using View = RowView256;
  static constexpr int kBlock = 256;
  static constexpr int kScalesAt = 32;
  static constexpr int kMinimaAt = 96;
  static constexpr int kHighAt = 160;
  static constexpr int kNibblesAt = kHighAt + (five ? 256 : 0);
  static constexpr int kBytes = kNibblesAt + 1024;

  static void pack(const Raw* const* columns, std::uint8_t* out) {
    pack_halves<Raw, &Raw::d>(columns, out);
    pack_halves<Raw, &Raw::dmin>(columns, out + 16);
    for (int s = 0; s < 8; s++) {
      for (int c = 0; c < kColumns; c++) {
        out[kScalesAt + 8 * s + c] = static_cast<std::uint8_t>(scale_k4(columns[c]->scales, s));
        out[kMinimaAt + 8 * s + c] = static_cast<std::uint8_t>(min_k4(columns[c]->scales, s));
      }
      if constexpr (five) pack_high_bits<1>(columns, 8 * s, out + kHighAt + 32 * s);
    }
    pack_nibbles(
        columns, 32, [](int v) { return v / 8 * 16 + v % 8; }, [](int v) { return v / 8 * 16 + 8 + v % 8; },
        out + kNibblesAt);
  }

  // One sub-block of 32 weights, scaled; sixteen-bit sums as in Small.
  template <class V, int M, bool upper>
  FUCINA_INLINE void sub_block(const std::uint8_t* tile, int pair, const std::int8_t* q, std::size_t q_stride,
                               typename V::I32* sum) {
    const int s = 2 * pair + upper;
    typename V::I16 first[M], second[M];
    for (int m = 0; m < M; m++) first[m] = second[m] = V::zero_i16();
    const auto groups = [&]<int g>() __attribute__((always_inline)) {
      const auto packed = V::load_u8(tile + kNibblesAt + 256 * pair + 32 * g);
      auto w = upper ? V::high_nibbles(packed) : V::low_nibbles(packed);
      if constexpr (five) {
        w = V::either(w, V::template bits_to_4<g, 1>(V::load_u8(tile + kHighAt + 32 * s)));
      }
      for (int m = 0; m < M; m++) {
        const auto products = V::dot_bytes(w, q + m * q_stride + 32 * s + 4 * g);
        if constexpr (five && g >= 4) {
          second[m] = V::add(second[m], products);
        } else {
          first[m] = V::add(first[m], products);
        }
      }
    };
    groups.template operator()<0>();
    groups.template operator()<1>();
    groups.template operator()<2>();
    groups.template operator()<3>();
    groups.template operator()<4>();
    groups.template operator()<5>();
    groups.template operator()<6>();
    groups.template operator()<7>();
    const auto scale = V::twice_i8(tile + kScalesAt + 8 * s);
    for (int m = 0; m < M; m++) {
      sum[m] = V::add(sum[m], V::dot_pairs(first[m], scale));
      if constexpr (five) sum[m] = V::add(sum[m], V::dot_pairs(second[m], scale));
    }
  }

  template <class V, int M>
  FUCINA_INLINE void dot(const std::uint8_t* tiles, int n_blocks, View x, typename V::F* y) {
    const int d_blocks = n_blocks;
    typename V::F acc_min[M];
    for (int m = 0; m < M; m++) y[m] = acc_min[m] = V::zero();
    const std::uint8_t* tile = tiles;
    for (int b = 0; b < n_blocks; b++, tile += kBytes) {
      typename V::I32 sum[M];
      for (int m = 0; m < M; m++) sum[m] = V::zero_i32();
      for (int pair = 0; pair < 4; pair++) {
        sub_block<V, M, false>(tile, pair, x.q + 256 * b, x.q_stride, sum);
        sub_block<V, M, true>(tile, pair, x.q + 256 * b, x.q_stride, sum);
      }
      const auto d = V::load_half(halves_at(tile));
      for (int m = 0; m < M; m++) {
        const auto scale = V::mul(d, V::set(x.d[m * d_blocks + b]));
        y[m] = V::fma(scale, V::to_float(sum[m]), y[m]);
      }
    }
    tile = tiles;
    for (int b = 0; b < n_blocks; b++, tile += kBytes) {
      typename V::I32 sum[M];
      for (int m = 0; m < M; m++) sum[m] = V::zero_i32();
      for (int pair = 0; pair < 4; pair++) {
        const auto minima = V::interleave_i8(tile + kMinimaAt + 16 * pair, tile + kMinimaAt + 16 * pair + 8);
        for (int m = 0; m < M; m++) {
          const std::int16_t* sums = x.sum32 + (m * d_blocks + b) * 8 + 2 * pair;
          sum[m] = V::add(sum[m], V::dot_pairs(minima, V::set_pair(sums)));
        }
      }
      const auto d = V::load_half(halves_at(tile + 16));
      for (int m = 0; m < M; m++) {
        const auto scale = V::mul(d, V::set(x.d[m * d_blocks + b]));
        acc_min[m] = V::fma(scale, V::to_float(sum[m]), acc_min[m]);
      }
    }
    for (int m = 0; m < M; m++) y[m] = V::sub(y[m], acc_min[m]);
  }
};

// Q6_K: [d f16 x8][scales 16 x 8][qh 16 x 32][ql 32 x 32]
struct KSix {
  using Raw = RawQ6_K;
  using View = RowView256;
  static constexpr int kBlock = 256;
  static constexpr int kScalesAt = 16;
  static constexpr int kHighAt = 144;
  static constexpr int kNibblesAt = kHighAt + 512;
  static constexpr int kBytes = kNibblesAt + 1024;

  static void pack(const Raw* const* columns, std::uint8_t* out) {
    pack_halves<Raw, &Raw::d>(columns, out);
    for (int s = 0; s < 16; s++) {
      for (int c = 0; c < kColumns; c++) {
        out[kScalesAt + 8 * s + c] = static_cast<std::uint8_t>(columns[c]->scales[s]);
      }
      pack_high_bits<2>(columns, 4 * s, out + kHighAt + 32 * s);
    }
    pack_nibbles(
        columns, 32, [](int v) { return v / 4 * 8 + v % 4; }, [](int v) { return v / 4 * 8 + 4 + v % 4; },
        out + kNibblesAt);
  }

  // One sub-block of 16 weights, scaled; two groups hold in sixteen bits: 2 x 2 x 63 x 127 = 32,004.
  template <class V, int M, bool upper>
  FUCINA_INLINE void sub_block(const std::uint8_t* tile, int pair, const std::int8_t* q, std::size_t q_stride,
                               typename V::I32* sum) {
    const int s = 2 * pair + upper;
    const auto bits = V::load_u8(tile + kHighAt + 32 * s);
    const auto scale = V::twice_i8(tile + kScalesAt + 8 * s);
    const auto two_groups = [&]<int g>() __attribute__((always_inline)) {
      const auto a = V::load_u8(tile + kNibblesAt + 128 * pair + 32 * g);
      const auto b = V::load_u8(tile + kNibblesAt + 128 * pair + 32 * g + 32);
      const auto wa = V::either(upper ? V::high_nibbles(a) : V::low_nibbles(a), V::template bits_to_4<2 * g, 2>(bits));
      const auto wb =
          V::either(upper ? V::high_nibbles(b) : V::low_nibbles(b), V::template bits_to_4<2 * g + 2, 2>(bits));
      for (int m = 0; m < M; m++) {
        const std::int8_t* at = q + m * q_stride + 16 * s + 4 * g;
        const auto products = V::add(V::dot_bytes(wa, at), V::dot_bytes(wb, at + 4));
        sum[m] = V::add(sum[m], V::dot_pairs(products, scale));
      }
    };
    two_groups.template operator()<0>();
    two_groups.template operator()<2>();
  }

  template <class V, int M>
  FUCINA_INLINE void dot(const std::uint8_t* tile, int n_blocks, View x, typename V::F* y) {
    for (int m = 0; m < M; m++) y[m] = V::zero();
    for (int b = 0; b < n_blocks; b++, tile += kBytes) {
      typename V::I32 sum[M], offset[M];
      for (int m = 0; m < M; m++) sum[m] = offset[m] = V::zero_i32();
      for (int pair = 0; pair < 8; pair++) {
        const auto scales = V::interleave_i8(tile + kScalesAt + 16 * pair, tile + kScalesAt + 16 * pair + 8);
        for (int m = 0; m < M; m++) {
          const std::int16_t* sums = x.sum16 + (m * n_blocks + b) * 16 + 2 * pair;
          offset[m] = V::add(offset[m], V::dot_pairs(scales, V::set_pair(sums)));
        }
      }
      for (int m = 0; m < M; m++) sum[m] = V::sub(V::zero_i32(), V::template shift_left<5>(offset[m]));
      for (int pair = 0; pair < 8; pair++) {
        sub_block<V, M, false>(tile, pair, x.q + 256 * b, x.q_stride, sum);
        sub_block<V, M, true>(tile, pair, x.q + 256 * b, x.q_stride, sum);
      }
      const auto d = V::load_half(halves_at(tile));
      for (int m = 0; m < M; m++) {
        const auto scale = V::mul(d, V::set(x.d[m * n_blocks + b]));
        y[m] = V::fma(scale, V::to_float(sum[m]), y[m]);
      }
    }
  }
};

}  // namespace fucina
