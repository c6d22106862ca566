// The lanes of AVX-512 with its int8 dot products: sixteen of them for products, and for everything else those of AVX2,
// whose instructions the compiler then chooses from more registers. The meaning of every operation is given in
// generic.h.
#pragma once

// Some versions of GCC find fault with the undefined lanes of their own intrinsics, wherever these are inlined.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "simd/avx2.h"

namespace fucina {

// A type of its own, so that its kernels share no name with those of the AVX2 tier.
struct Avx512Rows : Avx2 {};

struct Avx512 {
  using F = __m512;
  struct I32 {
    __m512i v;
  };
  struct I16 {
    __m512i v;
  };
  struct U8 {
    __m512i v;
  };

  FUCINA_INLINE F zero() { return _mm512_setzero_ps(); }
  FUCINA_INLINE F set(float x) { return _mm512_set1_ps(x); }
  FUCINA_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
  FUCINA_INLINE void store(float* p, F a) { _mm512_storeu_ps(p, a); }
  FUCINA_INLINE __m128i sixteen_bytes(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  FUCINA_INLINE __m256i sixteen_halves(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  FUCINA_INLINE F load_half(const std::uint16_t* p) { return _mm512_cvtph_ps(sixteen_halves(p)); }
  FUCINA_INLINE F load_bfloat(const std::uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(sixteen_halves(p)), 16));
  }
  FUCINA_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  FUCINA_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  FUCINA_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  FUCINA_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  FUCINA_INLINE F to_float(I32 a) { return _mm512_cvtepi32_ps(a.v); }
  FUCINA_INLINE I32 round(F a) { return {_mm512_cvtps_epi32(a)}; }
  FUCINA_INLINE std::int32_t sum(I32 a) { return _mm512_reduce_add_epi32(a.v); }

  FUCINA_INLINE I32 zero_i32() { return {_mm512_setzero_si512()}; }
  FUCINA_INLINE I32 set_i32(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
  FUCINA_INLINE I32 add(I32 a, I32 b) { return {_mm512_add_epi32(a.v, b.v)}; }
  FUCINA_INLINE I32 sub(I32 a, I32 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
  template <int n>
  FUCINA_INLINE I32 times(I32 a) {
    if constexpr (std::has_single_bit(static_cast<unsigned>(n))) {
      return {_mm512_slli_epi32(a.v, std::countr_zero(static_cast<unsigned>(n)))};
    } else {
      return {_mm512_mullo_epi32(a.v, _mm512_set1_epi32(n))};
    }
  }

  static constexpr int kColumns = 16, kVectorBytes = 64, kRows = 8;
  static constexpr int float_vectors(int) { return 2; }

  // Sums of products in 32 bits, one to a column.
  struct Sum {
    __m512i v;
  };
  // Of whole bytes w + 128.
  struct ByteSum : Sum {};
  using ByteWeights = U8;
  using Scale = I32;

  // All of a block: 32 * 127 * 255 is far from 2^31.
  template <class S>
  static constexpr int groups_held(int) {
    return 8;
  }
  template <class S>
  static constexpr int excess() {
    return std::is_same_v<S, ByteSum> ? 128 : 0;
  }
  template <class S>
  FUCINA_INLINE S start() {
    return S{};
  }
  template <int four>
  FUCINA_INLINE void dot(Sum& sum, U8 w, const std::int8_t* x) {
    std::int32_t bits;
    std::memcpy(&bits, x + 4 * four, 4);
    sum.v = _mm512_dpbusd_epi32(sum.v, w.v, _mm512_set1_epi32(bits));
  }
  FUCINA_INLINE I32 settle(Sum s) { return {s.v}; }
  FUCINA_INLINE I32 settle(Sum s, Scale scale) { return {_mm512_mullo_epi32(s.v, scale.v)}; }
  FUCINA_INLINE Scale load_scales(const std::uint8_t* p) { return {_mm512_cvtepi8_epi32(sixteen_bytes(p))}; }
  FUCINA_INLINE ByteWeights load_bytes_plus_128(const std::uint8_t* p) { return load_u8(p); }
  template <const std::int8_t (&table)[16]>
  FUCINA_INLINE ByteWeights look_up_bytes(U8 codes) {
    return look_up_plus<table, 128>(codes);
  }
  template <const std::int8_t (&table)[16], int plus>
  FUCINA_INLINE U8 look_up_plus(U8 codes) {
    const __m128i values = _mm_add_epi8(sixteen_bytes(table), _mm_set1_epi8(static_cast<char>(plus)));
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), codes.v)};
  }

  FUCINA_INLINE I32 dot_pairs(I16 a, I16 b) { return {_mm512_madd_epi16(a.v, b.v)}; }
  FUCINA_INLINE I16 interleave_i8(const std::uint8_t* a, const std::uint8_t* b) {
    const __m128i first = sixteen_bytes(a), second = sixteen_bytes(b);
    const __m128i low = _mm_unpacklo_epi8(first, second), high = _mm_unpackhi_epi8(first, second);
    return {_mm512_cvtepi8_epi16(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1))};
  }
  FUCINA_INLINE I16 set_pair(const std::int16_t* p) {
    std::int32_t bits;
    std::memcpy(&bits, p, 4);
    return {_mm512_set1_epi32(bits)};
  }
  FUCINA_INLINE U8 load_u8(const std::uint8_t* p) { return {_mm512_loadu_si512(p)}; }
  FUCINA_INLINE U8 low_nibbles(U8 a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
  FUCINA_INLINE U8 high_nibbles(U8 a) { return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))}; }
  FUCINA_INLINE U8 either(U8 a, U8 b) { return {_mm512_or_si512(a.v, b.v)}; }
  // Bits first .. first + count - 1 of each byte, moved to bit `to`.
  template <int first, int count, int to>
  FUCINA_INLINE U8 move_bits(U8 a) {
    const __m512i mask = _mm512_set1_epi8(((1 << count) - 1) << to);
    if constexpr (first <= to) {
      return {_mm512_and_si512(_mm512_slli_epi16(a.v, to - first), mask)};
    } else {
      return {_mm512_and_si512(_mm512_srli_epi16(a.v, first - to), mask)};
    }
  }
};

}  // namespace fucina
