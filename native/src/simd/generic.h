// The portable lanes: plain arrays and loops that any C++ compiler understands and most vectorize.
//
// A lane policy offers eight f32 lanes (F), eight i32 lanes (I32), sixteen i16 lanes (I16) and thirty-two bytes (U8).
// Kernels are written once against it. Every operation is exact or correctly rounded, so every policy gives the same
// bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/half.h"

namespace fucina {

#if defined(__aarch64__) || defined(__FMA__)
FUCINA_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
// a * b + c rounded once, without the instruction. The product is exact in double; the sum is rounded to odd, so that
// the second rounding, to float, cannot go wrong (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums",
// 2008).
FUCINA_INLINE float fused(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  const double sum = product + addend;
  const double back = sum - product;
  const double error = (product - (sum - back)) + (addend - back);
  std::uint64_t bits = std::bit_cast<std::uint64_t>(sum);
  const bool inexact = (error < 0) | (error > 0);  // false for NaN: infinities pass through untouched
  if (inexact & !(bits & 1)) bits += ((error > 0) == (sum > 0)) ? 1 : -1;
  return static_cast<float>(std::bit_cast<double>(bits));
}
#endif

struct Generic {
  struct F {
    float v[8];
  };
  struct I32 {
    std::int32_t v[8];
  };
  struct I16 {
    std::int16_t v[16];
  };
  struct U8 {
    std::uint8_t v[32];
  };

#define FUCINA_LANES(type, n, expression)          \
  type r;                                          \
  for (int i = 0; i < n; i++) r.v[i] = expression; \
  return r

  // The bytes at p are wanted soon.
  FUCINA_INLINE void fetch(const void*, int) {}
  FUCINA_INLINE F zero() { return F{}; }
  FUCINA_INLINE F set(float x) { FUCINA_LANES(F, 8, x); }
  FUCINA_INLINE F load(const float* p) { FUCINA_LANES(F, 8, p[i]); }
  FUCINA_INLINE void store(float* p, F a) { std::memcpy(p, a.v, sizeof a.v); }
  FUCINA_INLINE F load_half(const std::uint16_t* p) { FUCINA_LANES(F, 8, half_to_float(p[i])); }
  FUCINA_INLINE void store_half(std::uint16_t* p, F a) {
    for (int i = 0; i < 8; i++) p[i] = float_to_half(a.v[i]);
  }
  FUCINA_INLINE F load_bfloat(const std::uint16_t* p) { FUCINA_LANES(F, 8, bfloat_to_float(p[i])); }
  FUCINA_INLINE F load_bytes(const std::int8_t* p) { FUCINA_LANES(F, 8, static_cast<float>(p[i])); }
  FUCINA_INLINE F add(F a, F b) { FUCINA_LANES(F, 8, a.v[i] + b.v[i]); }
  FUCINA_INLINE F sub(F a, F b) { FUCINA_LANES(F, 8, a.v[i] - b.v[i]); }
  FUCINA_INLINE F mul(F a, F b) { FUCINA_LANES(F, 8, a.v[i] * b.v[i]); }
  FUCINA_INLINE F div(F a, F b) { FUCINA_LANES(F, 8, a.v[i] / b.v[i]); }
  FUCINA_INLINE F fma(F a, F b, F c) { FUCINA_LANES(F, 8, fused(a.v[i], b.v[i], c.v[i])); }
  FUCINA_INLINE F max(F a, F b) { FUCINA_LANES(F, 8, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }  // b when unordered
  FUCINA_INLINE F min(F a, F b) { FUCINA_LANES(F, 8, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
  FUCINA_INLINE F abs(F a) { FUCINA_LANES(F, 8, __builtin_fabsf(a.v[i])); }
  FUCINA_INLINE F to_float(I32 a) { FUCINA_LANES(F, 8, static_cast<float>(a.v[i])); }
  // Round to the nearest even integer; |a| < 2^22.
  FUCINA_INLINE I32 round(F a) { FUCINA_LANES(I32, 8, std::bit_cast<std::int32_t>(a.v[i] + 12582912.0f) - 0x4b400000); }
  // 2^n for -127 < n < 128.
  FUCINA_INLINE F power_of_two(I32 n) { FUCINA_LANES(F, 8, std::bit_cast<float>((n.v[i] + 127) << 23)); }
  // `a` where x > limit, else 0.
  FUCINA_INLINE F where_greater(F x, F limit, F a) { FUCINA_LANES(F, 8, x.v[i] > limit.v[i] ? a.v[i] : 0.0f); }
  FUCINA_INLINE void store_bytes(std::int8_t* p, I32 a) {
    for (int i = 0; i < 8; i++) p[i] = static_cast<std::int8_t>(a.v[i]);
  }
  FUCINA_INLINE std::int32_t sum(I32 a) {
    std::int32_t total = 0;
    for (int i = 0; i < 8; i++) total += a.v[i];
    return total;
  }

  FUCINA_INLINE I32 zero_i32() { return I32{}; }
  FUCINA_INLINE I32 set_i32(std::int32_t x) { FUCINA_LANES(I32, 8, x); }
  FUCINA_INLINE I32 add(I32 a, I32 b) { FUCINA_LANES(I32, 8, a.v[i] + b.v[i]); }
  FUCINA_INLINE I32 sub(I32 a, I32 b) { FUCINA_LANES(I32, 8, a.v[i] - b.v[i]); }
  template <int n>
  FUCINA_INLINE I32 times(I32 a) {
    FUCINA_LANES(I32, 8, a.v[i] * n);
  }

  // The integer products of packed tiles (kernels/quants.h).
  // Columns of a tile, bytes of a vector of it, and the most rows of a row block.
  static constexpr int kColumns = 8, kVectorBytes = 32, kRows = 2;
  // Of 32 columns of floats, the vectors that are summed together with so many rows.
  static constexpr int float_vectors(int) { return 4; }

  // Sums of products of weights with int8. Here: two 16-bit lanes to a column.
  struct Sum {
    I16 s;
  };
  // Of whole bytes, which are stored as w + 128.
  struct ByteSum {
    I32 s;
  };
  struct ByteWeights {
    U8 w;
  };
  struct Scale {
    I16 s;
  };
  // Groups of products with weights 0 .. most that a sum has room for.
  template <class S>
  static constexpr int groups_held(int most) {
    return std::is_same_v<S, ByteSum> ? 8 : 32767 / (2 * 127 * most);
  }
  // What `dot` leaves in the weights and the caller must subtract.
  template <class S>
  static constexpr int excess() {
    return 0;
  }
  template <class S>
  FUCINA_INLINE S start() {
    return S{};
  }
  // The weights of every column times the same four activations (number `four` of x; none is -128), added.
  template <int four>
  FUCINA_INLINE void dot(Sum& sum, U8 w, const std::int8_t* x) {
    const std::int8_t* x4 = x + 4 * four;
    for (int i = 0; i < 16; i++) {
      const int products = w.v[2 * i] * x4[2 * i % 4] + w.v[2 * i + 1] * x4[(2 * i + 1) % 4];
      sum.s.v[i] = static_cast<std::int16_t>(sum.s.v[i] + products);
    }
  }
  template <int four>
  FUCINA_INLINE void dot(ByteSum& sum, ByteWeights w, const std::int8_t* x) {
    for (int i = 0; i < 32; i++) sum.s.v[i / 4] += (w.w.v[i] - 128) * x[4 * four + i % 4];
  }
  // The sum of every column; with scales, that times the column's scale.
  FUCINA_INLINE I32 settle(Sum a) { FUCINA_LANES(I32, 8, a.s.v[2 * i] + a.s.v[2 * i + 1]); }
  FUCINA_INLINE I32 settle(ByteSum a) { return a.s; }
  FUCINA_INLINE I32 settle(Sum a, Scale scale) { return dot_pairs(a.s, scale.s); }
  FUCINA_INLINE I32 settle(ByteSum a, Scale scale) { FUCINA_LANES(I32, 8, a.s.v[i] * scale.s.v[2 * i]); }
  FUCINA_INLINE ByteWeights load_bytes_plus_128(const std::uint8_t* p) { return {load_u8(p)}; }
  // The values of a table for codes 0 .. 15: as whole bytes; as unsigned bytes with `plus` added.
  template <const std::int8_t (&table)[16]>
  FUCINA_INLINE ByteWeights look_up_bytes(U8 codes) {
    return {look_up_plus<table, 128>(codes)};
  }
  template <const std::int8_t (&table)[16], int plus>
  FUCINA_INLINE U8 look_up_plus(U8 codes) {
    FUCINA_LANES(U8, 32, static_cast<std::uint8_t>(table[codes.v[i]] + plus));
  }
  // One signed byte for each column.
  FUCINA_INLINE Scale load_scales(const std::uint8_t* p) { return {interleave_i8(p, p)}; }

  // Sums of neighboring products: lane i = a[2i] * b[2i] + a[2i+1] * b[2i+1].
  FUCINA_INLINE I32 dot_pairs(I16 a, I16 b) {
    FUCINA_LANES(I32, 8, a.v[2 * i] * b.v[2 * i] + a.v[2 * i + 1] * b.v[2 * i + 1]);
  }
  // A byte of each column from two rows, interleaved into 16-bit lanes: a[0], b[0], a[1], b[1], ...
  FUCINA_INLINE I16 interleave_i8(const std::uint8_t* a, const std::uint8_t* b) {
    FUCINA_LANES(I16, 16, static_cast<std::int16_t>(static_cast<std::int8_t>(i % 2 ? b[i / 2] : a[i / 2])));
  }
  // The same two 16-bit values in every 32-bit lane.
  FUCINA_INLINE I16 set_pair(const std::int16_t* p) { FUCINA_LANES(I16, 16, p[i % 2]); }

  FUCINA_INLINE U8 load_u8(const std::uint8_t* p) {
    U8 r;
    std::memcpy(r.v, p, 32);
    return r;
  }
  FUCINA_INLINE U8 low_nibbles(U8 a) { FUCINA_LANES(U8, 32, a.v[i] & 15); }
  FUCINA_INLINE U8 high_nibbles(U8 a) { FUCINA_LANES(U8, 32, a.v[i] >> 4); }
  FUCINA_INLINE U8 either(U8 a, U8 b) { FUCINA_LANES(U8, 32, a.v[i] | b.v[i]); }
  // Bits first .. first + count - 1 of each byte, moved to bit `to`.
  template <int first, int count, int to>
  FUCINA_INLINE U8 move_bits(U8 a) {
    FUCINA_LANES(U8, 32, static_cast<std::uint8_t>(((a.v[i] >> first) & ((1 << count) - 1)) << to));
  }
#undef FUCINA_LANES
};

}  // namespace fucina
