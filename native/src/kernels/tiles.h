// Packed weights: the columns of a tile interleaved, in the order in which a product reads them. Only a stream without
// steps back is fetched ahead by the processor.
//
// Inside a block everything is integer and therefore exact in any order; across blocks there is one f32 fma chain per
// output, blocks ascending.
#pragma once

#include <cstring>

#include "formats/elements.h"
#include "kernels/kernels.h"
#include "kernels/quants.h"

namespace fucina {

FUCINA_INLINE const std::uint16_t* halves_at(const std::uint8_t* p) {
  return reinterpret_cast<const std::uint16_t*>(p);
}

FUCINA_INLINE constexpr std::size_t round_up(std::size_t n, std::size_t grain) {
  return (n + grain - 1) / grain * grain;
}

template <class Raw, std::uint16_t Raw::* member>
FUCINA_INLINE void pack_halves(const Raw* const* column_blocks, int columns, std::uint8_t* out) {
  for (int c = 0; c < columns; c++) std::memcpy(out + 2 * c, &(column_blocks[c]->*member), 2);
}

// The 16-bit scale of a block of 32.
struct HalfScale {
  template <class Raw>
  FUCINA_INLINE void pack(const Raw* const* column_blocks, int columns, std::uint8_t* out) {
    pack_halves<Raw, &Raw::d>(column_blocks, columns, out);
  }
  template <class V>
  FUCINA_INLINE typename V::F load(const std::uint16_t* p) {
    return V::load_half(p);
  }
};
// A power of two, which a bfloat16 holds exactly.
struct PowerScale {
  template <class Raw>
  FUCINA_INLINE void pack(const Raw* const* column_blocks, int columns, std::uint8_t* out) {
    for (int c = 0; c < columns; c++) {
      const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(block_scale(*column_blocks[c])) >> 16);
      std::memcpy(out + 2 * c, &bits, 2);
    }
  }
  template <class V>
  FUCINA_INLINE typename V::F load(const std::uint16_t* p) {
    return V::load_bfloat(p);
  }
};

// The integer products of one chunk with M rows. `settle<m, sub>(sum)` takes what a row has gathered over groups of one
// sub-block; it is called as often as a sum must be emptied.
template <class V, class Quants, int M, int kSubBlock, class Settle>
FUCINA_INLINE void multiply_fours(const std::uint8_t* chunk, const std::int8_t* q, Settle settle) {
  using Sum = typename Quants::template Sum<V>;
  constexpr int groups = kSubBlock / 4;
  constexpr int room = V::template groups_held<Sum>(Quants::kMost);
  constexpr int period = room >= groups ? groups : room >= 4 ? 4 : room >= 2 ? 2 : 1;
  Sum sum[M];
  unroll<8>(FUCINA_EACH(turn) {
    constexpr int g = Quants::group_at(turn);
    const auto w = Quants::template group<V, g>(chunk);
    unroll<M>(FUCINA_EACH(m) {
      if constexpr (turn % period == 0) sum[m] = V::template start<Sum>();
      V::template dot<M * g + m>(sum[m], w, q);
      if constexpr (turn % period == period - 1) settle.template operator()<m, g / groups>(sum[m]);
    });
  });
}

// The same with lanes that multiply eights (kernels/quants.h) of two rows at a time.
template <class V, class Quants, int M, int kSubBlock, class Settle>
FUCINA_INLINE void multiply_eights(const std::uint8_t* chunk, const std::int8_t* q, Settle settle) {
  constexpr int period = kSubBlock / 8;
  typename V::PairSum sum[(M + 1) / 2];
  unroll<4>(FUCINA_EACH(eight) {
    const auto first = Quants::template group<V, Quants::group_at(2 * eight)>(chunk);
    const auto second = Quants::template group<V, Quants::group_at(2 * eight + 1)>(chunk);
    unroll<(M + 1) / 2>(FUCINA_EACH(pair) {
      constexpr int m = 2 * pair, four = M * 2 * eight + m;
      if constexpr (eight % period == 0) sum[pair] = V::start_pair();
      V::dot_eights(sum[pair], first, second, V::template two_rows<four, four + M, (m + 1 < M)>(q));
      if constexpr (eight % period == period - 1) {
        settle.template operator()<m, eight / period>(V::first_row(sum[pair]));
        if constexpr (m + 1 < M) settle.template operator()<m + 1, eight / period>(V::second_row(sum[pair]));
      }
    });
  });
}

template <class V, class Quants, int M, int kSubBlock, class Settle>
FUCINA_INLINE void multiply_chunk(const std::uint8_t* chunk, const std::int8_t* q, Settle settle) {
  if constexpr (takes_eights<V>) {
    multiply_eights<V, Quants, M, kSubBlock>(chunk, q, settle);
  } else {
    multiply_fours<V, Quants, M, kSubBlock>(chunk, q, settle);
  }
}

// Blocks of 32 weights with a 16-bit scale, and an offset of all quants or a minimum.
// Four blocks lie together, so that their quants are aligned: [d x4][m x4 if minimum][quants x4].
template <class RawBlock, class Quants, int offset, bool minimum, class Scale = HalfScale>
struct Blocks32 {
  using Raw = RawBlock;
  using Rows = Rows32;
  static constexpr int kBlock = 32;
  static constexpr int kTogether = 4;
  static constexpr int kScaleHalves = minimum ? 2 : 1;
  FUCINA_INLINE constexpr int quant_bytes(int columns) { return Quants::kVectors * 4 * columns; }
  FUCINA_INLINE constexpr int scale_bytes(int columns) { return kTogether * kScaleHalves * 2 * columns; }
  FUCINA_INLINE constexpr std::size_t tile_bytes(int n_blocks, int columns) {
    return round_up(n_blocks, kTogether) / kTogether * scale_bytes(columns) + n_blocks * quant_bytes(columns);
  }

  template <int columns>
  FUCINA_INLINE void pack(const Raw* const* column_blocks, bool eights, int block, std::uint8_t* tile) {
    const int four = block / kTogether, in_four = block % kTogether;
    std::uint8_t* scales = tile + tile_bytes(four * kTogether, columns);
    pack_chunks<Quants, 1>(column_blocks, columns, eights,
                           scales + scale_bytes(columns) + in_four * quant_bytes(columns));
    Scale::pack(column_blocks, columns, scales + 2 * columns * in_four);
    if constexpr (minimum) {
      pack_halves<Raw, &Raw::m>(column_blocks, columns, scales + 2 * columns * (kTogether + in_four));
    }
  }

  template <class V, int M>
  FUCINA_INLINE void dot(const std::uint8_t* tile, int n_blocks, Rows x, typename V::F* y) {
    using Sum = typename Quants::template Sum<V>;
    typename V::F acc[M], acc_min[M];
    unroll<M>(FUCINA_EACH(m) { acc[m] = acc_min[m] = V::zero(); });
    for (int first = 0; first < n_blocks; first += kTogether) {
      const std::uint16_t* d = halves_at(tile);
      tile += scale_bytes(V::kColumns);
      const int last = n_blocks < first + kTogether ? n_blocks : first + kTogether;
      for (int b = first; b < last; b++, tile += quant_bytes(V::kColumns), d += V::kColumns) {
        typename V::I32 sum[M];
        unroll<M>(FUCINA_EACH(m) { sum[m] = V::zero_i32(); });
        multiply_chunk<V, Quants, M, 32>(tile, x.q + 32 * M * b, [&]<int m, int>(Sum s) __attribute__((always_inline)) {
          sum[m] = V::add(sum[m], V::settle(s));
        });
        const auto scale = Scale::template load<V>(d);
        unroll<M>(FUCINA_EACH(m) {
          const int at = M * b + m;
          constexpr int excess = offset + V::template excess<Sum>();
          if constexpr (excess != 0) sum[m] = V::sub(sum[m], V::template times<excess>(V::set_i32(x.sum[at])));
          acc[m] = V::fma(V::mul(scale, V::set(x.d[at])), V::to_float(sum[m]), acc[m]);
          if constexpr (minimum) {
            acc_min[m] = V::fma(V::load_half(d + kTogether * V::kColumns), V::set(x.d_sum[at]), acc_min[m]);
          }
        });
      }
    }
    unroll<M>(FUCINA_EACH(m) { y[m] = minimum ? V::add(acc[m], acc_min[m]) : acc[m]; });
  }
};

// Integer scales (and minima) of a block's sub-blocks: n_subs rows of one byte a column.
template <class V, int M>
FUCINA_INLINE typename V::I32 weigh_sums(const std::uint8_t* bytes, const std::int16_t* sums, int n_subs) {
  auto total = V::zero_i32();
  for (int s = 0; s < n_subs; s += 2) {
    const auto pairs = V::interleave_i8(bytes + V::kColumns * s, bytes + V::kColumns * (s + 1));
    total = V::add(total, V::dot_pairs(pairs, V::set_pair(sums + M * s)));
  }
  return total;
}

// Blocks of 256 weights in sub-blocks with integer scales (formats/elements.h: sub_scale and sub_minimum).
// A block is [d][dmin if minima][scales][minima][quants].
template <class RawBlock, class Quants, int kSubBlock, int offset, bool minima>
struct Blocks256 {
  using Raw = RawBlock;
  using Rows = Rows256;
  static constexpr int kBlock = 256;
  static constexpr int kSubs = 256 / kSubBlock;
  FUCINA_INLINE constexpr int chunk_bytes(int columns) { return Quants::kVectors * 4 * columns; }
  FUCINA_INLINE constexpr int scale_bytes(int columns) {
    return static_cast<int>(round_up((minima ? 4 + 2 * kSubs : 2 + kSubs) * columns, 4 * columns));  // whole vectors
  }
  FUCINA_INLINE constexpr std::size_t tile_bytes(int n_blocks, int columns) {
    return static_cast<std::size_t>(n_blocks) * (scale_bytes(columns) + 8 * chunk_bytes(columns));
  }

  template <int columns>
  FUCINA_INLINE void pack(const Raw* const* column_blocks, bool eights, int block, std::uint8_t* tile) {
    std::uint8_t* out = tile + tile_bytes(block, columns);
    pack_halves<Raw, &Raw::d>(column_blocks, columns, out);
    if constexpr (minima) pack_halves<Raw, &Raw::dmin>(column_blocks, columns, out + 2 * columns);
    std::uint8_t* scales = out + (minima ? 4 : 2) * columns;
    for (int four = 0; four < columns / 4; four++) {
      Words of_subs[kSubs / 4], minima_of_subs[kSubs / 4];
      load_scales(column_blocks + 4 * four, of_subs, minima_of_subs);
      unroll<kSubs / 4>(FUCINA_EACH(j) {
        spread_bytes(of_subs[j], columns, scales + 4 * j * columns + 4 * four);
        if constexpr (minima) spread_bytes(minima_of_subs[j], columns, scales + (kSubs + 4 * j) * columns + 4 * four);
      });
    }
    pack_chunks<Quants, 8>(column_blocks, columns, eights, out + scale_bytes(columns));
  }

  template <class V, int M>
  FUCINA_INLINE void dot(const std::uint8_t* tile, int n_blocks, Rows x, typename V::F* y) {
    using Sum = typename Quants::template Sum<V>;
    typename V::F acc_min[M];
    unroll<M>(FUCINA_EACH(m) { y[m] = acc_min[m] = V::zero(); });
    for (int b = 0; b < n_blocks; b++) {
      const std::uint8_t *halves = tile, *scales = tile + (minima ? 4 : 2) * V::kColumns;
      tile += scale_bytes(V::kColumns);
      typename V::I32 sum[M];
      unroll<M>(FUCINA_EACH(m) { sum[m] = V::zero_i32(); });
      for (int chunk = 0; chunk < 8; chunk++, tile += chunk_bytes(V::kColumns)) {
        const auto scale = V::load_scales(scales + V::kColumns * (32 / kSubBlock) * chunk);
        const auto second = kSubBlock == 32 ? scale : V::load_scales(scales + V::kColumns * (2 * chunk + 1));
        multiply_chunk<V, Quants, M, kSubBlock>(tile, x.q + 32 * M * (8 * b + chunk),
                                                [&]<int m, int sub>(Sum s) __attribute__((always_inline)) {
                                                  sum[m] = V::add(sum[m], V::settle(s, sub == 0 ? scale : second));
                                                });
      }
      constexpr int excess = offset + V::template excess<Sum>();
      const auto d = V::load_half(halves_at(halves));
      unroll<M>(FUCINA_EACH(m) {
        const std::int16_t* sums = (kSubBlock == 32 ? x.sum32 : x.sum16) + M * kSubs * b + 2 * m;
        if constexpr (excess != 0) {
          const auto surplus = weigh_sums<V, M>(scales, sums, kSubs);
          sum[m] = V::sub(sum[m], V::template times<excess>(surplus));
        }
        const auto dx = V::set(x.d[M * b + m]);
        y[m] = V::fma(V::mul(d, dx), V::to_float(sum[m]), y[m]);
        if constexpr (minima) {
          const auto minimum = weigh_sums<V, M>(scales + V::kColumns * kSubs, sums, kSubs);
          const auto dmin = V::load_half(halves_at(halves + 2 * V::kColumns));
          acc_min[m] = V::fma(V::mul(dmin, dx), V::to_float(minimum), acc_min[m]);
        }
      });
    }
    if constexpr (minima) unroll<M>(FUCINA_EACH(m) { y[m] = V::sub(y[m], acc_min[m]); });
  }
};

using TileQ4_0 = Blocks32<RawQ4_0, FourBits, 8, false>;
using TileQ4_1 = Blocks32<RawQ4_1, FourBits, 0, true>;
using TileQ5_0 = Blocks32<RawQ5_0, FiveBits, 16, false>;
using TileQ5_1 = Blocks32<RawQ5_1, FiveBits, 0, true>;
using TileQ8_0 = Blocks32<RawQ8_0, Bytes, 0, false>;
using TileIQ4_NL = Blocks32<RawIQ4_NL, ByteTable<kIQ4Codes>, 0, false>;
using TileMXFP4 = Blocks32<RawMXFP4, SmallTable<kE2M1Doubled, 12>, 12, false, PowerScale>;
using TileQ2_K = Blocks256<RawQ2_K, TwoBits, 16, 0, true>;
using TileQ3_K = Blocks256<RawQ3_K, ThreeBits, 16, 4, false>;
using TileQ4_K = Blocks256<RawQ4_K, FourBits, 32, 0, true>;
using TileQ5_K = Blocks256<RawQ5_K, FiveBits, 32, 0, true>;
using TileQ6_K = Blocks256<RawQ6_K, SixBits, 16, 32, false>;
using TileIQ4_XS = Blocks256<RawIQ4_XS, ByteTable<kIQ4Codes>, 32, 0, false>;

// Calls `use` with the tile type of a quantized format.
template <class Use>
FUCINA_INLINE auto with_tile(Format format, Use use) {
  switch (format) {
    case Format::Q4_0:
      return use.template operator()<TileQ4_0>();
    case Format::Q4_1:
      return use.template operator()<TileQ4_1>();
    case Format::Q5_0:
      return use.template operator()<TileQ5_0>();
    case Format::Q5_1:
      return use.template operator()<TileQ5_1>();
    case Format::IQ4_NL:
      return use.template operator()<TileIQ4_NL>();
    case Format::MXFP4:
      return use.template operator()<TileMXFP4>();
    case Format::Q2_K:
      return use.template operator()<TileQ2_K>();
    case Format::Q3_K:
      return use.template operator()<TileQ3_K>();
    case Format::Q4_K:
      return use.template operator()<TileQ4_K>();
    case Format::Q5_K:
      return use.template operator()<TileQ5_K>();
    case Format::Q6_K:
      return use.template operator()<TileQ6_K>();
    case Format::IQ4_XS:
      return use.template operator()<TileIQ4_XS>();
    default:
      return use.template operator()<TileQ8_0>();
  }
}

// Tiles begin at cache lines.
template <class Tile>
FUCINA_INLINE constexpr std::size_t tile_size(int d_in, int columns) {
  return round_up(Tile::tile_bytes(d_in / Tile::kBlock, columns), 64);
}

}  // namespace fucina
