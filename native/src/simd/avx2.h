// The lanes of AVX2 with FMA and F16C. The meaning of every operation is given in generic.h.
#pragma once

#include <immintrin.h>

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/half.h"

namespace fucina {

FUCINA_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

struct Avx2 {
  using F = __m256;
  struct I32 {
    __m256i v;
  };
  struct I16 {
    __m256i v;
  };
  struct U8 {
    __m256i v;
  };

  FUCINA_INLINE void fetch(const void* p, int bytes) {
    for (int i = 0; i < bytes; i += 64) _mm_prefetch(static_cast<const char*>(p) + i, _MM_HINT_T1);
  }
  FUCINA_INLINE F zero() { return _mm256_setzero_ps(); }
  FUCINA_INLINE F set(float x) { return _mm256_set1_ps(x); }
  FUCINA_INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
  FUCINA_INLINE void store(float* p, F a) { _mm256_storeu_ps(p, a); }
  FUCINA_INLINE F load_half(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  FUCINA_INLINE void store_half(std::uint16_t* p, F a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  FUCINA_INLINE F load_bfloat(const std::uint16_t* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  FUCINA_INLINE F load_bytes(const std::int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  FUCINA_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
  FUCINA_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  FUCINA_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  FUCINA_INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
  FUCINA_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  FUCINA_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
  FUCINA_INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
  FUCINA_INLINE F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  FUCINA_INLINE F to_float(I32 a) { return _mm256_cvtepi32_ps(a.v); }
  FUCINA_INLINE I32 round(F a) { return {_mm256_cvtps_epi32(a)}; }
  FUCINA_INLINE F power_of_two(I32 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.v, _mm256_set1_epi32(127)), 23));
  }
  FUCINA_INLINE F where_greater(F x, F limit, F a) { return _mm256_and_ps(_mm256_cmp_ps(x, limit, _CMP_GT_OQ), a); }
  FUCINA_INLINE void store_bytes(std::int8_t* p, I32 a) {
    const __m256i words = _mm256_packs_epi32(a.v, a.v);
    const __m256i bytes = _mm256_packs_epi16(words, words);
    const int low = _mm256_extract_epi32(bytes, 0), high = _mm256_extract_epi32(bytes, 4);
    std::memcpy(p, &low, 4);
    std::memcpy(p + 4, &high, 4);
  }
  FUCINA_INLINE std::int32_t sum(I32 a) {
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
  }

  FUCINA_INLINE I32 zero_i32() { return {_mm256_setzero_si256()}; }
  FUCINA_INLINE I32 set_i32(std::int32_t x) { return {_mm256_set1_epi32(x)}; }
  FUCINA_INLINE I32 add(I32 a, I32 b) { return {_mm256_add_epi32(a.v, b.v)}; }
  FUCINA_INLINE I32 sub(I32 a, I32 b) { return {_mm256_sub_epi32(a.v, b.v)}; }
  template <int n>
  FUCINA_INLINE I32 times(I32 a) {
    if constexpr (std::has_single_bit(static_cast<unsigned>(n))) {
      return {_mm256_slli_epi32(a.v, std::countr_zero(static_cast<unsigned>(n)))};
    } else {
      return {_mm256_mullo_epi32(a.v, _mm256_set1_epi32(n))};
    }
  }

  // The integer products of packed tiles (kernels/quants.h).
  static constexpr int kColumns = 8, kVectorBytes = 32, kRows = 6;
  // Of 32 columns of floats, the vectors whose sums fit into the registers with those of so many rows.
  static constexpr int float_vectors(int rows) { return rows <= 3 ? 4 : 2; }

  // Sums of products of unsigned bytes with int8, two to a column, in 16 bits.
  struct Sum {
    __m256i v;
  };
  // Of whole bytes w + 128, as 16 * high nibble + low nibble.
  struct ByteSum {
    Sum low, high;
  };
  struct ByteWeights {
    U8 low, high;
  };
  struct Scale {
    __m256i v;
  };
  template <class S>
  static constexpr int groups_held(int most) {
    return 32767 / (2 * 127 * (std::is_same_v<S, ByteSum> ? 15 : most));
  }
  template <class S>
  static constexpr int excess() {
    return std::is_same_v<S, ByteSum> ? 128 : 0;
  }
  template <class S>
  FUCINA_INLINE S start() {
    return S{};
  }
  FUCINA_INLINE __m256i four_bytes(const std::int8_t* x4) {
    std::int32_t bits;
    std::memcpy(&bits, x4, 4);
    return _mm256_set1_epi32(bits);
  }
  FUCINA_INLINE void add_products(Sum& sum, U8 w, __m256i x) {
    sum.v = _mm256_add_epi16(sum.v, _mm256_maddubs_epi16(w.v, x));
    // Without this the compiler multiplies everything first and keeps the products in memory.
    asm("" : "+x"(sum.v));
  }
  template <int four>
  FUCINA_INLINE void dot(Sum& sum, U8 w, const std::int8_t* x) {
    add_products(sum, w, four_bytes(x + 4 * four));
  }
  template <int four>
  FUCINA_INLINE void dot(ByteSum& sum, ByteWeights w, const std::int8_t* x) {
    const __m256i lanes = four_bytes(x + 4 * four);
    add_products(sum.low, w.low, lanes);
    add_products(sum.high, w.high, lanes);
  }
  FUCINA_INLINE I32 settle(Sum s) { return {_mm256_madd_epi16(s.v, _mm256_set1_epi16(1))}; }
  FUCINA_INLINE I32 settle(ByteSum s) {
    return add(settle(s.low), {_mm256_madd_epi16(s.high.v, _mm256_set1_epi16(16))});
  }
  FUCINA_INLINE I32 settle(Sum s, Scale scale) { return {_mm256_madd_epi16(s.v, scale.v)}; }
  FUCINA_INLINE I32 settle(ByteSum s, Scale scale) {
    return add(settle(s.low, scale), settle(s.high, Scale{_mm256_slli_epi16(scale.v, 4)}));
  }
  FUCINA_INLINE ByteWeights load_bytes_plus_128(const std::uint8_t* p) {
    const U8 w = load_u8(p);
    return {low_nibbles(w), high_nibbles(w)};
  }
  // (table[code] + plus) >> shift & mask for sixteen codes, at compile time.
  template <const std::int8_t (&table)[16], int plus, int shift, int mask>
  FUCINA_INLINE __m256i table_of() {
    static constexpr auto kEntries = [] {
      std::array<std::uint8_t, 16> entries{};
      for (int i = 0; i < 16; i++) entries[i] = static_cast<std::uint8_t>((table[i] + plus) >> shift & mask);
      return entries;
    }();
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kEntries.data())));
  }
  template <const std::int8_t (&table)[16]>
  FUCINA_INLINE ByteWeights look_up_bytes(U8 codes) {
    return {{_mm256_shuffle_epi8(table_of<table, 128, 0, 15>(), codes.v)},
            {_mm256_shuffle_epi8(table_of<table, 128, 4, 15>(), codes.v)}};
  }
  template <const std::int8_t (&table)[16], int plus>
  FUCINA_INLINE U8 look_up_plus(U8 codes) {
    return {_mm256_shuffle_epi8(table_of<table, plus, 0, 255>(), codes.v)};
  }
  FUCINA_INLINE Scale load_scales(const std::uint8_t* p) { return {interleave_i8(p, p).v}; }

  FUCINA_INLINE I32 dot_pairs(I16 a, I16 b) { return {_mm256_madd_epi16(a.v, b.v)}; }
  FUCINA_INLINE I16 interleave_i8(const std::uint8_t* a, const std::uint8_t* b) {
    const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(a));
    const __m128i high = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(b));
    return {_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(low, high))};
  }
  FUCINA_INLINE I16 set_pair(const std::int16_t* p) {
    std::int32_t bits;
    std::memcpy(&bits, p, 4);
    return {_mm256_set1_epi32(bits)};
  }
  FUCINA_INLINE U8 load_u8(const std::uint8_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
  FUCINA_INLINE U8 low_nibbles(U8 a) { return {_mm256_and_si256(a.v, _mm256_set1_epi8(15))}; }
  FUCINA_INLINE U8 high_nibbles(U8 a) { return {_mm256_and_si256(_mm256_srli_epi16(a.v, 4), _mm256_set1_epi8(15))}; }
  FUCINA_INLINE U8 either(U8 a, U8 b) { return {_mm256_or_si256(a.v, b.v)}; }
  // Bits first .. first + count - 1 of each byte, moved to bit `to`.
  template <int first, int count, int to>
  FUCINA_INLINE U8 move_bits(U8 a) {
    const __m256i mask = _mm256_set1_epi8(((1 << count) - 1) << to);
    if constexpr (first <= to) {
      return {_mm256_and_si256(_mm256_slli_epi16(a.v, to - first), mask)};
    } else {
      return {_mm256_and_si256(_mm256_srli_epi16(a.v, first - to), mask)};
    }
  }
};

}  // namespace fucina
