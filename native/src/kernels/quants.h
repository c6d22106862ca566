// Packed quants: how thirty-two weights of a tile's columns (a chunk) lie in vectors.
//
// A vector has four bytes for each column: lane 4c + i belongs to column c. Group g of a chunk is its weights 4g ..
// 4g+3, so that one vector of a group meets the same four activations in every column.
#pragma once

#include <cstdint>

#include "base/unroll.h"
#include "kernels/codes.h"

namespace fucina {

// A vector of bytes made of `bits` wide pieces of codes, from `low_bit` of these on: piece j comes from group first +
// j.
template <int bits>
FUCINA_INLINE Words plane(const Words* codes, int first, int low_bit) {
  Words all = {};
  unroll<8 / bits>(
      FUCINA_EACH(j) { all |= (codes[first + j] >> low_bit & ((1 << bits) - 1) * 0x01010101u) << (bits * j); });
  return all;
}

// Four bits: the nibbles of vector v are two groups `span` apart.
template <int span>
struct Nibbles {
  static constexpr int kVectors = 4;
  static constexpr int group_at(int turn) {
    return turn / (2 * span) * 2 * span + turn % 2 * span + turn % (2 * span) / 2;
  }

  FUCINA_INLINE void pack(const Words* codes, int vector_bytes, std::uint8_t* out) {
    unroll<4>(FUCINA_EACH(v) {
      constexpr int first = v / span * 2 * span + v % span;
      store_vector(out + v * vector_bytes, (codes[first] & kBits4) | (codes[first + span] & kBits4) << 4);
    });
  }
  template <class V, int g>
  FUCINA_INLINE typename V::U8 nibble(const std::uint8_t* chunk) {
    const auto both = V::load_u8(chunk + (g / (2 * span) * span + g % span) * V::kVectorBytes);
    return g % (2 * span) < span ? V::low_nibbles(both) : V::high_nibbles(both);
  }
};

struct FourBits : Nibbles<4> {
  static constexpr int kMost = 15;
  template <class V>
  using Sum = typename V::Sum;
  template <class V, int g>
  FUCINA_INLINE typename V::U8 group(const std::uint8_t* chunk) {
    return nibble<V, g>(chunk);
  }
};

struct FiveBits : Nibbles<4> {
  static constexpr int kMost = 31;
  static constexpr int kVectors = 5;
  template <class V>
  using Sum = typename V::Sum;
  FUCINA_INLINE void pack(const Words* codes, int vector_bytes, std::uint8_t* out) {
    Nibbles<4>::pack(codes, vector_bytes, out);
    store_vector(out + 4 * vector_bytes, plane<1>(codes, 0, 4));
  }
  template <class V, int g>
  FUCINA_INLINE typename V::U8 group(const std::uint8_t* chunk) {
    return V::either(nibble<V, g>(chunk), V::template move_bits<g, 1, 4>(V::load_u8(chunk + 4 * V::kVectorBytes)));
  }
};

struct SixBits : Nibbles<2> {
  static constexpr int kMost = 63;
  static constexpr int kVectors = 6;
  template <class V>
  using Sum = typename V::Sum;
  FUCINA_INLINE void pack(const Words* codes, int vector_bytes, std::uint8_t* out) {
    Nibbles<2>::pack(codes, vector_bytes, out);
    for (int half = 0; half < 2; half++) store_vector(out + (4 + half) * vector_bytes, plane<2>(codes, 4 * half, 4));
  }
  template <class V, int g>
  FUCINA_INLINE typename V::U8 group(const std::uint8_t* chunk) {
    const auto high = V::load_u8(chunk + (4 + g / 4) * V::kVectorBytes);
    return V::either(nibble<V, g>(chunk), V::template move_bits<2 * (g % 4), 2, 4>(high));
  }
};

// Two bits: vector v holds groups 4v .. 4v+3.
struct TwoBits {
  static constexpr int kMost = 3;
  static constexpr int kVectors = 2;
  static constexpr int group_at(int turn) { return turn; }
  template <class V>
  using Sum = typename V::Sum;
  FUCINA_INLINE void pack(const Words* codes, int vector_bytes, std::uint8_t* out) {
    for (int v = 0; v < 2; v++) store_vector(out + v * vector_bytes, plane<2>(codes, 4 * v, 0));
  }
  template <class V, int g>
  FUCINA_INLINE typename V::U8 group(const std::uint8_t* chunk) {
    return V::template move_bits<2 * (g % 4), 2, 0>(V::load_u8(chunk + g / 4 * V::kVectorBytes));
  }
};

struct ThreeBits : TwoBits {
  static constexpr int kMost = 7;
  static constexpr int kVectors = 3;
  FUCINA_INLINE void pack(const Words* codes, int vector_bytes, std::uint8_t* out) {
    TwoBits::pack(codes, vector_bytes, out);
    store_vector(out + 2 * vector_bytes, plane<1>(codes, 0, 2));
  }
  template <class V, int g>
  FUCINA_INLINE typename V::U8 group(const std::uint8_t* chunk) {
    const auto high = V::template move_bits<g, 1, 2>(V::load_u8(chunk + 2 * V::kVectorBytes));
    return V::either(TwoBits::group<V, g>(chunk), high);
  }
};

// Four bits that stand for the values of a table, any bytes.
template <const std::int8_t (&table)[16]>
struct ByteTable : Nibbles<4> {
  static constexpr int kMost = 255;
  template <class V>
  using Sum = typename V::ByteSum;
  template <class V, int g>
  FUCINA_INLINE typename V::ByteWeights group(const std::uint8_t* chunk) {
    return V::template look_up_bytes<table>(nibble<V, g>(chunk));
  }
};

// Four bits that stand for the values of a table, -most .. most; `most` is left added to them.
template <const std::int8_t (&table)[16], int most>
struct SmallTable : Nibbles<4> {
  static constexpr int kMost = 2 * most;
  template <class V>
  using Sum = typename V::Sum;
  template <class V, int g>
  FUCINA_INLINE typename V::U8 group(const std::uint8_t* chunk) {
    return V::template look_up_plus<table, most>(nibble<V, g>(chunk));
  }
};

// Whole signed bytes.
struct Bytes {
  static constexpr int kMost = 255;
  static constexpr int kVectors = 8;
  template <class V>
  using Sum = typename V::ByteSum;
  static constexpr int group_at(int turn) { return turn; }
  FUCINA_INLINE void pack(const Words* codes, int vector_bytes, std::uint8_t* out) {
    unroll<8>(FUCINA_EACH(g) { store_vector(out + g * vector_bytes, codes[g] ^ 0x80808080u); });  // plus 128
  }
  template <class V, int g>
  FUCINA_INLINE typename V::ByteWeights group(const std::uint8_t* chunk) {
    return V::load_bytes_plus_128(chunk + g * V::kVectorBytes);
  }
};

// Lanes that multiply matrices of int8 want eight weights of a column side by side. The two vectors that a product
// meets in turns 2e and 2e + 1 then hold weights 8e .. 8e+7: byte 8c + i belongs to column c, and the second vector
// goes on where the first ends.
template <class V>
constexpr bool takes_eights = requires { typename V::PairSum; };

// Moves the words of a chunk among its columns and groups as eights want them.
template <class Quants>
void move_to_eights(const Words (*from)[8], int columns, Words (*to)[8]) {
  for (int turn = 0; turn < 8; turn++) {
    for (int c = 0; c < columns; c++) {
      const int place = turn % 2 * columns + c, column = place / 2, group = turn / 2 * 2 + place % 2;
      to[c / 4][Quants::group_at(turn)][c % 4] = from[column / 4][group][column % 4];
    }
  }
}

constexpr int kMostColumns = 16;

template <class Quants, int chunks, class Raw>
[[gnu::noinline]] void pack_in_eights(const Raw* const* column_blocks, int columns, std::uint8_t* out) {
  const int vector_bytes = 4 * columns, chunk_bytes = Quants::kVectors * vector_bytes, fours = columns / 4;
  Words all[chunks][kMostColumns / 4][8], moved[kMostColumns / 4][8];
  for (int four = 0; four < fours; four++) {
    unpack(column_blocks + 4 * four,
           [&](int chunk, const Words* codes) { std::memcpy(all[chunk][four], codes, sizeof all[chunk][four]); });
  }
  for (int chunk = 0; chunk < chunks; chunk++) {
    move_to_eights<Quants>(all[chunk], columns, moved);
    for (int four = 0; four < fours; four++) {
      Quants::pack(moved[four], vector_bytes, out + chunk * chunk_bytes + 16 * four);
    }
  }
}

// Packs the chunks of one block of each column.
template <class Quants, int chunks, class Raw>
FUCINA_INLINE void pack_chunks(const Raw* const* column_blocks, int columns, bool eights, std::uint8_t* out) {
  if (eights) return pack_in_eights<Quants, chunks>(column_blocks, columns, out);
  const int vector_bytes = 4 * columns, chunk_bytes = Quants::kVectors * vector_bytes;
  for (int four = 0; four < columns / 4; four++) {
    unpack(column_blocks + 4 * four, [&](int chunk, const Words* codes) __attribute__((always_inline)) {
      Quants::pack(codes, vector_bytes, out + chunk * chunk_bytes + 16 * four);
    });
  }
}

}  // namespace fucina
