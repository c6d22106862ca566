// The lanes of AVX2 with the int8 dot products of AVX-VNNI: sums in 32 bits, one to a column. The meaning of every
// operation is given in generic.h.
#pragma once

#include "simd/avx2.h"

namespace fucina {

struct AvxVnni : Avx2 {
  struct Sum {
    __m256i v;
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
  template <int four>
  FUCINA_INLINE void dot(Sum& sum, U8 w, const std::int8_t* x) {
    sum.v = _mm256_dpbusd_avx_epi32(sum.v, w.v, four_bytes(x + 4 * four));
  }
  FUCINA_INLINE I32 settle(Sum s) { return {s.v}; }
  FUCINA_INLINE I32 settle(Sum s, Scale scale) { return {_mm256_mullo_epi32(s.v, scale.v)}; }
  FUCINA_INLINE Scale load_scales(const std::uint8_t* p) {
    return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
  }
  FUCINA_INLINE ByteWeights load_bytes_plus_128(const std::uint8_t* p) { return load_u8(p); }
  template <const std::int8_t (&table)[16]>
  FUCINA_INLINE ByteWeights look_up_bytes(U8 codes) {
    return look_up_plus<table, 128>(codes);
  }
};

}  // namespace fucina
