// The codes of raw blocks as words: four weights of each of four columns at a time. What packing is made of.
//
// A word has the codes of four neighboring weights, one a byte. The eight words of a chunk (thirty-two weights) are its
// groups (kernels/quants.h). All columns of a tile go through the same steps, so that a word of four of them is one
// vector of the portable kind, which every compiler and processor has.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/unroll.h"
#include "formats/formats.h"

namespace fucina {

static_assert(std::endian::native == std::endian::little, "a block's first byte is the lowest of its word");

using Words = std::uint32_t __attribute__((vector_size(16)));  // a word of each of four columns
using Octets = std::uint8_t __attribute__((vector_size(16)));

#if defined(__clang__)
#define FUCINA_SHUFFLE(Vector, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define FUCINA_SHUFFLE(Vector, a, b, ...) __builtin_shuffle(a, b, Vector{__VA_ARGS__})
#endif

template <class Vector>
FUCINA_INLINE Vector load_vector(const void* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class Vector>
FUCINA_INLINE void store_vector(void* to, Vector v) {
  std::memcpy(to, &v, sizeof v);
}

// Four columns of four words become four words of four columns.
FUCINA_INLINE void transpose_words(Words& a, Words& b, Words& c, Words& d) {
  const Words ab = FUCINA_SHUFFLE(Words, a, b, 0, 4, 1, 5), ab_after = FUCINA_SHUFFLE(Words, a, b, 2, 6, 3, 7);
  const Words cd = FUCINA_SHUFFLE(Words, c, d, 0, 4, 1, 5), cd_after = FUCINA_SHUFFLE(Words, c, d, 2, 6, 3, 7);
  a = FUCINA_SHUFFLE(Words, ab, cd, 0, 1, 4, 5);
  b = FUCINA_SHUFFLE(Words, ab, cd, 2, 3, 6, 7);
  c = FUCINA_SHUFFLE(Words, ab_after, cd_after, 0, 1, 4, 5);
  d = FUCINA_SHUFFLE(Words, ab_after, cd_after, 2, 3, 6, 7);
}

// Word i of the bytes from `offset` on in the blocks of four columns, i in [0, n).
template <int n, class Raw>
FUCINA_INLINE void load_words(const Raw* const* four, std::size_t offset, Words* words) {
  const auto column = [&](int c) __attribute__((always_inline)) {
    return reinterpret_cast<const std::uint8_t*>(four[c]) + offset;
  };
  if constexpr (n == 1) {
    std::uint32_t of[4];
    for (int c = 0; c < 4; c++) std::memcpy(&of[c], column(c), 4);
    words[0] = Words{of[0], of[1], of[2], of[3]};
  } else {
    static_assert(n % 4 == 0);
    unroll<n / 4>(FUCINA_EACH(i) {
      Words* w = words + 4 * i;
      for (int c = 0; c < 4; c++) w[c] = load_vector<Words>(column(c) + 16 * i);
      transpose_words(w[0], w[1], w[2], w[3]);
    });
  }
}

constexpr std::uint32_t kBits1 = 0x01010101, kBits2 = 0x03030303, kBits4 = 0x0f0f0f0f, kBits6 = 0x3f3f3f3f;

// `emit(chunk, codes)` is called for every chunk of the blocks of four columns, with its eight words.

// Thirty-two nibbles in sixteen bytes: the low ones first.
template <class Raw>
FUCINA_INLINE void load_nibbles32(const Raw* const* four, std::size_t offset, Words* codes) {
  Words both[4];
  load_words<4>(four, offset, both);
  unroll<4>(FUCINA_EACH(i) {
    codes[i] = both[i] & kBits4;
    codes[4 + i] = both[i] >> 4 & kBits4;
  });
}
template <class Raw, class Emit>
FUCINA_INLINE void unpack_nibbles32(const Raw* const* four, Emit emit) {
  Words codes[8];
  load_nibbles32(four, offsetof(Raw, qs), codes);
  emit(0, codes);
}
template <class Emit>
FUCINA_INLINE void unpack(const RawQ4_0* const* four, Emit emit) {
  unpack_nibbles32(four, emit);
}
template <class Emit>
FUCINA_INLINE void unpack(const RawQ4_1* const* four, Emit emit) {
  unpack_nibbles32(four, emit);
}
template <class Emit>
FUCINA_INLINE void unpack(const RawIQ4_NL* const* four, Emit emit) {
  unpack_nibbles32(four, emit);
}
template <class Emit>
FUCINA_INLINE void unpack(const RawMXFP4* const* four, Emit emit) {
  unpack_nibbles32(four, emit);
}
template <class Emit>
FUCINA_INLINE void unpack(const RawIQ4_XS* const* four, Emit emit) {
  for (int chunk = 0; chunk < 8; chunk++) {
    Words codes[8];
    load_nibbles32(four, offsetof(RawIQ4_XS, qs) + 16 * chunk, codes);
    emit(chunk, codes);
  }
}

// Bit k of the word `qh` is the fifth bit of weight k.
template <class Raw, class Emit>
FUCINA_INLINE void unpack_five32(const Raw* const* four, Emit emit) {
  Words codes[8], high;
  load_nibbles32(four, offsetof(Raw, qs), codes);
  load_words<1>(four, offsetof(Raw, qh), &high);
  unroll<8>(FUCINA_EACH(g) {
    const Words bits = high >> (4 * g) & 15;
    codes[g] |= ((bits | bits << 7 | bits << 14 | bits << 21) & kBits1) << 4;
  });
  emit(0, codes);
}
template <class Emit>
FUCINA_INLINE void unpack(const RawQ5_0* const* four, Emit emit) {
  unpack_five32(four, emit);
}
template <class Emit>
FUCINA_INLINE void unpack(const RawQ5_1* const* four, Emit emit) {
  unpack_five32(four, emit);
}

template <class Emit>
FUCINA_INLINE void unpack(const RawQ8_0* const* four, Emit emit) {
  Words codes[8];
  load_words<8>(four, offsetof(RawQ8_0, qs), codes);
  emit(0, codes);
}

template <class Emit>
FUCINA_INLINE void unpack(const RawQ4_K* const* four, Emit emit) {
  for (int pair = 0; pair < 4; pair++) {
    Words both[8], codes[8];
    load_words<8>(four, offsetof(RawQ4_K, qs) + 32 * pair, both);
    unroll<8>(FUCINA_EACH(g) { codes[g] = both[g] & kBits4; });
    emit(2 * pair, codes);
    unroll<8>(FUCINA_EACH(g) { codes[g] = both[g] >> 4 & kBits4; });
    emit(2 * pair + 1, codes);
  }
}

template <class Emit>
FUCINA_INLINE void unpack(const RawQ5_K* const* four, Emit emit) {
  Words high[8];
  load_words<8>(four, offsetof(RawQ5_K, qh), high);
  for (int pair = 0; pair < 4; pair++) {
    Words both[8], codes[8];
    load_words<8>(four, offsetof(RawQ5_K, qs) + 32 * pair, both);
    unroll<8>(FUCINA_EACH(g) { codes[g] = (both[g] & kBits4) | (high[g] >> (2 * pair) & kBits1) << 4; });
    emit(2 * pair, codes);
    unroll<8>(FUCINA_EACH(g) { codes[g] = (both[g] >> 4 & kBits4) | (high[g] >> (2 * pair + 1) & kBits1) << 4; });
    emit(2 * pair + 1, codes);
  }
}

template <class Emit>
FUCINA_INLINE void unpack(const RawQ6_K* const* four, Emit emit) {
  for (int half = 0; half < 2; half++) {
    Words high[8];
    load_words<8>(four, offsetof(RawQ6_K, qh) + 32 * half, high);
    for (int quarter = 0; quarter < 4; quarter++) {
      Words codes[8];
      load_words<8>(four, offsetof(RawQ6_K, ql) + 64 * half + 32 * (quarter % 2), codes);
      unroll<8>(FUCINA_EACH(g) {
        codes[g] = (codes[g] >> (quarter / 2 * 4) & kBits4) | (high[g] >> (2 * quarter) & kBits2) << 4;
      });
      emit(4 * half + quarter, codes);
    }
  }
}

// Two bits of each weight, four chunks in the same bytes; Q3_K has a third bit in `high`.
template <class Raw, class Emit>
FUCINA_INLINE void unpack_two(const Raw* const* four, const Words* high, Emit emit) {
  for (int half = 0; half < 2; half++) {
    Words all[8];
    load_words<8>(four, offsetof(Raw, qs) + 32 * half, all);
    for (int quarter = 0; quarter < 4; quarter++) {
      Words codes[8];
      unroll<8>(FUCINA_EACH(g) {
        codes[g] = all[g] >> (2 * quarter) & kBits2;
        if (high) codes[g] |= (high[g] >> (4 * half + quarter) & kBits1) << 2;
      });
      emit(4 * half + quarter, codes);
    }
  }
}
template <class Emit>
FUCINA_INLINE void unpack(const RawQ2_K* const* four, Emit emit) {
  unpack_two(four, nullptr, emit);
}
template <class Emit>
FUCINA_INLINE void unpack(const RawQ3_K* const* four, Emit emit) {
  Words high[8];
  load_words<8>(four, offsetof(RawQ3_K, hmask), high);
  unpack_two(four, high, emit);
}

// Integer scales of sub-blocks, offset subtracted, and minima where there are any: byte i of word j belongs to
// sub-block 4j + i.

FUCINA_INLINE Words minus_32(Words six_bits) { return (six_bits + 0x60606060u) ^ 0x80808080u; }

FUCINA_INLINE void load_scales(const RawQ2_K* const* four, Words* scales, Words* minima) {
  load_words<4>(four, offsetof(RawQ2_K, scales), scales);
  unroll<4>(FUCINA_EACH(j) {
    minima[j] = scales[j] >> 4 & kBits4;
    scales[j] &= kBits4;
  });
}
FUCINA_INLINE void load_scales(const RawQ3_K* const* four, Words* scales, Words*) {
  Words low[2], high;
  load_words<1>(four, offsetof(RawQ3_K, scales), low);
  load_words<1>(four, offsetof(RawQ3_K, scales) + 4, low + 1);
  load_words<1>(four, offsetof(RawQ3_K, scales) + 8, &high);
  unroll<4>(
      FUCINA_EACH(j) { scales[j] = minus_32((low[j % 2] >> (j / 2 * 4) & kBits4) | (high >> (2 * j) & kBits2) << 4); });
}
// Q4_K and Q5_K, whose blocks begin alike.
template <class Raw>
FUCINA_INLINE void load_scales(const Raw* const* four, Words* scales, Words* minima) {
  static_assert(offsetof(Raw, scales) == 4 && sizeof(Raw::scales) == 12);
  Words w[4];
  load_words<4>(four, 0, w);
  scales[0] = w[1] & kBits6;
  minima[0] = w[2] & kBits6;
  scales[1] = (w[3] & kBits4) | (w[1] >> 6 & kBits2) << 4;
  minima[1] = (w[3] >> 4 & kBits4) | (w[2] >> 6 & kBits2) << 4;
}
FUCINA_INLINE void load_scales(const RawQ6_K* const* four, Words* scales, Words*) {
  load_words<4>(four, offsetof(RawQ6_K, scales), scales);
}
FUCINA_INLINE void load_scales(const RawIQ4_XS* const* four, Words* scales, Words*) {
  Words low, high;
  load_words<1>(four, offsetof(RawIQ4_XS, scales_l), &low);
  load_words<1>(four, 0, &high);
  high >>= 16;
  unroll<2>(FUCINA_EACH(j) {
    Words nibbles = low >> (16 * j) & 0xffff, pairs = high >> (8 * j) & 0xff;
    nibbles = (nibbles | nibbles << 8) & 0x00ff00ff;
    pairs = (pairs | pairs << 12) & 0x000f000f;
    scales[j] = minus_32(((nibbles | nibbles << 4) & kBits4) | ((pairs | pairs << 6) & kBits2) << 4);
  });
}

// Byte i of each of four columns goes to out[i * stride], side by side.
FUCINA_INLINE void spread_bytes(Words words, int stride, std::uint8_t* out) {
  // In two steps that every processor has: compilers make a loop over bytes of the one shuffle that they amount to.
  const auto halves_side_by_side = [](Octets o) __attribute__((always_inline)) {
    const Words w = std::bit_cast<Words>(o);
    const auto last = std::bit_cast<Octets>(FUCINA_SHUFFLE(Words, w, w, 2, 3, 2, 3));
    return FUCINA_SHUFFLE(Octets, o, last, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  };
  const auto sides = std::bit_cast<Words>(halves_side_by_side(halves_side_by_side(std::bit_cast<Octets>(words))));
  unroll<4>(FUCINA_EACH(i) { store_vector(out + i * stride, std::uint32_t{sides[i]}); });
}

}  // namespace fucina
