// Packed quants: how thirty-two weights of a tile's columns (a chunk) lie in vectors.
//
// A vector has four bytes for each column: lane 4c + i belongs to column c. Group g of a chunk is its weights 4g ..
// 4g+3, so that one vector of a group meets the same four activations in every column.
#pragma once

#include <cstdint>

#include "base/unroll.h"

namespace fucina {

// One byte of a vector made of `bits` wide pieces: piece j comes from group `first + j * step`.
template <int bits, class Code>
FUCINA_INLINE void pack_pieces(Code code, int columns, int first, int step, int low_bit, std::uint8_t* out) {
  for (int c = 0; c < columns; c++) {
    for (int i = 0; i < 4; i++) {
      int byte = 0;
      for (int j = 0; j < 8 / bits; j++) {
        byte |= (code(c, 4 * (first + j * step) + i) >> low_bit & ((1 << bits) - 1)) << (bits * j);
      }
      out[4 * c + i] = static_cast<std::uint8_t>(byte);
    }
  }
}

// Four bits: the nibbles of vector v are two groups `span` apart.
template <int span>
struct Nibbles {
  static constexpr int kVectors = 4;
  static constexpr int group_at(int turn) {
    return turn / (2 * span) * 2 * span + turn % 2 * span + turn % (2 * span) / 2;
  }

  template <class Code>
  static void pack(Code code, int columns, std::uint8_t* out) {
    for (int v = 0; v < 4; v++)
      pack_pieces<4>(code, columns, v / span * 2 * span + v % span, span, 0, out + 4 * columns * v);
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
  template <class Code>
  static void pack(Code code, int columns, std::uint8_t* out) {
    Nibbles<4>::pack(code, columns, out);
    pack_pieces<1>(code, columns, 0, 1, 4, out + 16 * columns);
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
  template <class Code>
  static void pack(Code code, int columns, std::uint8_t* out) {
    Nibbles<2>::pack(code, columns, out);
    for (int half = 0; half < 2; half++) pack_pieces<2>(code, columns, 4 * half, 1, 4, out + (16 + 4 * half) * columns);
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
  template <class Code>
  static void pack(Code code, int columns, std::uint8_t* out) {
    for (int v = 0; v < 2; v++) pack_pieces<2>(code, columns, 4 * v, 1, 0, out + 4 * columns * v);
  }
  template <class V, int g>
  FUCINA_INLINE typename V::U8 group(const std::uint8_t* chunk) {
    return V::template move_bits<2 * (g % 4), 2, 0>(V::load_u8(chunk + g / 4 * V::kVectorBytes));
  }
};

struct ThreeBits : TwoBits {
  static constexpr int kMost = 7;
  static constexpr int kVectors = 3;
  template <class Code>
  static void pack(Code code, int columns, std::uint8_t* out) {
    TwoBits::pack(code, columns, out);
    pack_pieces<1>(code, columns, 0, 1, 2, out + 8 * columns);
  }
  template <class V, int g>
  FUCINA_INLINE typename V::U8 group(const std::uint8_t* chunk) {
    const auto high = V::template move_bits<g, 1, 2>(V::load_u8(chunk + 2 * V::kVectorBytes));
    return V::either(TwoBits::group<V, g>(chunk), high);
  }
};

// The place of a value in a table of sixteen.
template <const std::int8_t (&table)[16]>
constexpr int index_of(int value) {
  int i = 0;
  while (table[i] != value) i++;
  return i;
}

// Four bits that stand for the values of a table, any bytes.
template <const std::int8_t (&table)[16]>
struct ByteTable : Nibbles<4> {
  static constexpr int kMost = 255;
  template <class V>
  using Sum = typename V::ByteSum;
  template <class Value>
  static void pack(Value value, int columns, std::uint8_t* out) {
    Nibbles<4>::pack([&](int c, int k) { return index_of<table>(value(c, k)); }, columns, out);
  }
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
  template <class Value>
  static void pack(Value value, int columns, std::uint8_t* out) {
    Nibbles<4>::pack([&](int c, int k) { return index_of<table>(value(c, k)); }, columns, out);
  }
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
  template <class Code>
  static void pack(Code code, int columns, std::uint8_t* out) {
    for (int g = 0; g < 8; g++) {
      for (int c = 0; c < columns; c++) {
        for (int i = 0; i < 4; i++)
          out[4 * (g * columns + c) + i] = static_cast<std::uint8_t>(code(c, 4 * g + i) + 128);
      }
    }
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

// Packs a chunk of weights code(column, k), in fours or in eights.
template <class Quants, class Code>
void pack_chunk(Code code, int columns, bool eights, std::uint8_t* out) {
  if (!eights) return Quants::pack(code, columns, out);
  const auto in_eights = [&](int c, int k) {
    int turn = 0;
    while (Quants::group_at(turn) != k / 4) turn++;
    const int byte = turn % 2 * 4 * columns + 4 * c + k % 4;
    return code(byte / 8, turn / 2 * 8 + byte % 8);
  };
  Quants::pack(in_eights, columns, out);
}

}  // namespace fucina
