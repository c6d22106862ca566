// The AVX-VNNI and AVX-512 operations that native/src/simd uses, done with those of AVX2. Found before the compiler's
// header of this name, it lets a processor without these instructions run the tiers that are made of them. Their
// meaning is that of the vendor's manual; a vector of 512 bits is two of 256.
#pragma once

#include_next <immintrin.h>

namespace emulated {

#define EMULATED static inline __attribute__((always_inline))

struct Floats {
  __m256 low, high;
};
struct Integers {
  __m256i low, high;
};

// Operations that do the same in both halves.
#define EMULATED_ONE(to, from, name, operation) \
  EMULATED to name(from a) { return {operation(a.low), operation(a.high)}; }
#define EMULATED_TWO(type, name, operation) \
  EMULATED type name(type a, type b) { return {operation(a.low, b.low), operation(a.high, b.high)}; }
#define EMULATED_SHIFT(name, operation) \
  EMULATED Integers name(Integers a, int n) { return {operation(a.low, n), operation(a.high, n)}; }
// The two halves of a narrower vector, each widened.
#define EMULATED_WIDEN(to, name, operation)                                                   \
  EMULATED to name(__m256i a) {                                                               \
    return {operation(_mm256_castsi256_si128(a)), operation(_mm256_extracti128_si256(a, 1))}; \
  }

EMULATED_TWO(Floats, add_ps, _mm256_add_ps)
EMULATED_TWO(Floats, sub_ps, _mm256_sub_ps)
EMULATED_TWO(Floats, mul_ps, _mm256_mul_ps)
EMULATED_TWO(Integers, add_epi32, _mm256_add_epi32)
EMULATED_TWO(Integers, sub_epi32, _mm256_sub_epi32)
EMULATED_TWO(Integers, mullo_epi32, _mm256_mullo_epi32)
EMULATED_TWO(Integers, madd_epi16, _mm256_madd_epi16)
EMULATED_TWO(Integers, shuffle_epi8, _mm256_shuffle_epi8)
EMULATED_TWO(Integers, and_si512, _mm256_and_si256)
EMULATED_TWO(Integers, or_si512, _mm256_or_si256)
EMULATED_SHIFT(slli_epi16, _mm256_slli_epi16)
EMULATED_SHIFT(srli_epi16, _mm256_srli_epi16)
EMULATED_SHIFT(slli_epi32, _mm256_slli_epi32)
EMULATED_ONE(Floats, Integers, castsi512_ps, _mm256_castsi256_ps)
EMULATED_ONE(Floats, Integers, cvtepi32_ps, _mm256_cvtepi32_ps)
EMULATED_ONE(Integers, Floats, cvtps_epi32, _mm256_cvtps_epi32)
EMULATED_WIDEN(Floats, cvtph_ps, _mm256_cvtph_ps)
EMULATED_WIDEN(Integers, cvtepu16_epi32, _mm256_cvtepu16_epi32)
EMULATED_WIDEN(Integers, cvtepi8_epi16, _mm256_cvtepi8_epi16)

EMULATED Floats set1_ps(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
EMULATED Integers set1_epi32(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
EMULATED Integers set1_epi8(char x) { return {_mm256_set1_epi8(x), _mm256_set1_epi8(x)}; }
EMULATED Integers broadcast_i32x4(__m128i a) {
  return {_mm256_broadcastsi128_si256(a), _mm256_broadcastsi128_si256(a)};
}
EMULATED Integers cvtepi8_epi32(__m128i a) {
  return {_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8))};
}
EMULATED Floats fmadd_ps(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
EMULATED Floats loadu_ps(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
EMULATED void storeu_ps(float* p, Floats a) {
  _mm256_storeu_ps(p, a.low);
  _mm256_storeu_ps(p + 8, a.high);
}
EMULATED Integers loadu_si512(const void* p) {
  const auto* half = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(half), _mm256_loadu_si256(half + 1)};
}
EMULATED int reduce_add_epi32(Integers a) {
  int lanes[8], sum = 0;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi32(a.low, a.high));
  for (const int lane : lanes) sum += lane;
  return sum;
}

// Four products of an unsigned and a signed byte, added to each 32-bit lane. A 16-bit product of widened bytes cannot
// overflow 32 bits, nor can two: first bytes 0 and 2 of the lane, then 1 and 3.
EMULATED __m256i dpbusd(__m256i sum, __m256i a, __m256i b) {
  const __m256i even =
      _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(255)), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
  return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
EMULATED Integers dpbusd_epi32(Integers sum, Integers a, Integers b) {
  return {dpbusd(sum.low, a.low, b.low), dpbusd(sum.high, a.high, b.high)};
}

}  // namespace emulated

#define __m512 emulated::Floats
#define __m512i emulated::Integers
#define _mm512_setzero_ps() emulated::set1_ps(0.0f)
#define _mm512_setzero_si512() emulated::set1_epi32(0)
#define _mm512_set1_ps emulated::set1_ps
#define _mm512_set1_epi32 emulated::set1_epi32
#define _mm512_set1_epi8 emulated::set1_epi8
#define _mm512_broadcast_i32x4 emulated::broadcast_i32x4
#define _mm512_loadu_ps emulated::loadu_ps
#define _mm512_storeu_ps emulated::storeu_ps
#define _mm512_loadu_si512 emulated::loadu_si512
#define _mm512_add_ps emulated::add_ps
#define _mm512_sub_ps emulated::sub_ps
#define _mm512_mul_ps emulated::mul_ps
#define _mm512_fmadd_ps emulated::fmadd_ps
#define _mm512_add_epi32 emulated::add_epi32
#define _mm512_sub_epi32 emulated::sub_epi32
#undef _mm512_mullo_epi32
#define _mm512_mullo_epi32 emulated::mullo_epi32
#define _mm512_reduce_add_epi32 emulated::reduce_add_epi32
#define _mm512_madd_epi16 emulated::madd_epi16
#define _mm512_shuffle_epi8 emulated::shuffle_epi8
#define _mm512_and_si512 emulated::and_si512
#define _mm512_or_si512 emulated::or_si512
#define _mm512_castsi512_ps emulated::castsi512_ps
#define _mm512_cvtepi32_ps emulated::cvtepi32_ps
#define _mm512_cvtps_epi32 emulated::cvtps_epi32
#define _mm512_cvtph_ps emulated::cvtph_ps
#define _mm512_cvtepu16_epi32 emulated::cvtepu16_epi32
#define _mm512_cvtepi8_epi16 emulated::cvtepi8_epi16
#define _mm512_cvtepi8_epi32 emulated::cvtepi8_epi32
#define _mm512_dpbusd_epi32 emulated::dpbusd_epi32
// What some compilers make macros.
#undef _mm512_slli_epi16
#undef _mm512_srli_epi16
#undef _mm512_slli_epi32
#undef _mm256_dpbusd_avx_epi32
#define _mm512_slli_epi16 emulated::slli_epi16
#define _mm512_srli_epi16 emulated::srli_epi16
#define _mm512_slli_epi32 emulated::slli_epi32
#define _mm256_dpbusd_avx_epi32 emulated::dpbusd
