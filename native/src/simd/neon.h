// The lanes of 64-bit ARM: NEON alone, with the int8 dot products (dotprod), and with the int8 matrix products (i8mm).
// The meaning of every operation is given in generic.h.
#pragma once

#include <arm_neon.h>

#include <cstring>
#include <type_traits>

#include "base/half.h"

namespace fucina {

FUCINA_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

struct Neon {
  struct F {
    float32x4_t low, high;
  };
  struct I32 {
    int32x4_t low, high;
  };
  // Two bytes of each column, as 16-bit numbers.
  struct I16 {
    int16x8_t first, second;
  };
  struct U8 {
    uint8x16_t low, high;
  };

  FUCINA_INLINE void fetch(const void* p, int bytes) {
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(p) + i);
  }
  FUCINA_INLINE F zero() { return set(0.0f); }
  FUCINA_INLINE F set(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
  FUCINA_INLINE F load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  FUCINA_INLINE void store(float* p, F a) {
    vst1q_f32(p, a.low);
    vst1q_f32(p + 4, a.high);
  }
  FUCINA_INLINE F load_half(const std::uint16_t* p) {
    const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(p));
    return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
  }
  FUCINA_INLINE void store_half(std::uint16_t* p, F a) {
    vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a.low), a.high)));
  }
  FUCINA_INLINE F load_bfloat(const std::uint16_t* p) {
    const uint16x8_t upper = vld1q_u16(p);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(upper), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(upper, 16))};
  }
  FUCINA_INLINE F load_bytes(const std::int8_t* p) {
    const int16x8_t words = vmovl_s8(vld1_s8(p));
    return to_float({vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)});
  }
  FUCINA_INLINE F add(F a, F b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
  FUCINA_INLINE F sub(F a, F b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
  FUCINA_INLINE F mul(F a, F b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
  FUCINA_INLINE F div(F a, F b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
  FUCINA_INLINE F fma(F a, F b, F c) { return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)}; }
  // Compare and select: the instructions for maximum and minimum treat NaN and -0 otherwise.
  FUCINA_INLINE F max(F a, F b) {
    return {vbslq_f32(vcgtq_f32(a.low, b.low), a.low, b.low), vbslq_f32(vcgtq_f32(a.high, b.high), a.high, b.high)};
  }
  FUCINA_INLINE F min(F a, F b) {
    return {vbslq_f32(vcltq_f32(a.low, b.low), a.low, b.low), vbslq_f32(vcltq_f32(a.high, b.high), a.high, b.high)};
  }
  FUCINA_INLINE F abs(F a) { return {vabsq_f32(a.low), vabsq_f32(a.high)}; }
  FUCINA_INLINE F to_float(I32 a) { return {vcvtq_f32_s32(a.low), vcvtq_f32_s32(a.high)}; }
  FUCINA_INLINE I32 round(F a) { return {vcvtnq_s32_f32(a.low), vcvtnq_s32_f32(a.high)}; }
  FUCINA_INLINE F power_of_two(I32 n) {
    const int32x4_t bias = vdupq_n_s32(127);
    return {vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n.low, bias), 23)),
            vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n.high, bias), 23))};
  }
  FUCINA_INLINE F where_greater(F x, F limit, F a) {
    const auto keep = [](float32x4_t v, float32x4_t bound, float32x4_t value) __attribute__((always_inline)) {
      return vreinterpretq_f32_u32(vandq_u32(vcgtq_f32(v, bound), vreinterpretq_u32_f32(value)));
    };
    return {keep(x.low, limit.low, a.low), keep(x.high, limit.high, a.high)};
  }
  FUCINA_INLINE void store_bytes(std::int8_t* p, I32 a) {
    vst1_s8(p, vmovn_s16(vmovn_high_s32(vmovn_s32(a.low), a.high)));
  }
  FUCINA_INLINE std::int32_t sum(I32 a) { return vaddvq_s32(vaddq_s32(a.low, a.high)); }

  FUCINA_INLINE I32 zero_i32() { return set_i32(0); }
  FUCINA_INLINE I32 set_i32(std::int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }
  FUCINA_INLINE I32 add(I32 a, I32 b) { return {vaddq_s32(a.low, b.low), vaddq_s32(a.high, b.high)}; }
  FUCINA_INLINE I32 sub(I32 a, I32 b) { return {vsubq_s32(a.low, b.low), vsubq_s32(a.high, b.high)}; }
  template <int n>
  FUCINA_INLINE I32 times(I32 a) {
    return {vmulq_n_s32(a.low, n), vmulq_n_s32(a.high, n)};
  }

  static constexpr int kColumns = 8, kVectorBytes = 32, kRows = 3;
  static constexpr int float_vectors(int rows) { return rows <= 2 ? 4 : 2; }

  // Sums of products in 16 bits, four to a column.
  struct Sum {
    int16x8_t v[4];
  };
  // Of whole bytes, in 32 bits: two products may already need seventeen.
  struct ByteSum {
    int32x4_t v[4];
  };
  struct ByteWeights {
    U8 w;
  };
  using Scale = I32;
  template <class S>
  static constexpr int groups_held(int most) {
    return std::is_same_v<S, ByteSum> ? 8 : 32767 / (127 * most);
  }
  template <class S>
  static constexpr int excess() {
    return 0;
  }
  template <class S>
  FUCINA_INLINE S start() {
    return S{};
  }
  // Four activations in every four lanes. Left to itself the compiler goes through a general register.
  FUCINA_INLINE int8x16_t four_bytes(const std::int8_t* x4) {
    int8x16_t lanes;
    asm("ld1r {%0.4s}, %1" : "=w"(lanes) : "Q"(*reinterpret_cast<const std::int8_t (*)[4]>(x4)));
    return lanes;
  }
  template <int four>
  FUCINA_INLINE void dot(Sum& sum, U8 w, const std::int8_t* x) {
    const int8x16_t lanes = four_bytes(x + 4 * four);
    const int8x16_t low = vreinterpretq_s8_u8(w.low), high = vreinterpretq_s8_u8(w.high);
    sum.v[0] = vmlal_s8(sum.v[0], vget_low_s8(low), vget_low_s8(lanes));
    sum.v[1] = vmlal_high_s8(sum.v[1], low, lanes);
    sum.v[2] = vmlal_s8(sum.v[2], vget_low_s8(high), vget_low_s8(lanes));
    sum.v[3] = vmlal_high_s8(sum.v[3], high, lanes);
    // Without this the compiler loads everything first and keeps it in memory.
    asm("" : "+w"(sum.v[0]), "+w"(sum.v[1]), "+w"(sum.v[2]), "+w"(sum.v[3]));
  }
  template <int four>
  FUCINA_INLINE void dot(ByteSum& sum, ByteWeights w, const std::int8_t* x) {
    const int8x16_t lanes = four_bytes(x + 4 * four);
    const int8x16_t low = vreinterpretq_s8_u8(w.w.low), high = vreinterpretq_s8_u8(w.w.high);
    sum.v[0] = vpadalq_s16(sum.v[0], vmull_s8(vget_low_s8(low), vget_low_s8(lanes)));
    sum.v[1] = vpadalq_s16(sum.v[1], vmull_high_s8(low, lanes));
    sum.v[2] = vpadalq_s16(sum.v[2], vmull_s8(vget_low_s8(high), vget_low_s8(lanes)));
    sum.v[3] = vpadalq_s16(sum.v[3], vmull_high_s8(high, lanes));
    asm("" : "+w"(sum.v[0]), "+w"(sum.v[1]), "+w"(sum.v[2]), "+w"(sum.v[3]));
  }
  FUCINA_INLINE I32 settle(Sum a) {
    return {vpaddq_s32(vpaddlq_s16(a.v[0]), vpaddlq_s16(a.v[1])), vpaddq_s32(vpaddlq_s16(a.v[2]), vpaddlq_s16(a.v[3]))};
  }
  FUCINA_INLINE I32 settle(ByteSum a) { return {vpaddq_s32(a.v[0], a.v[1]), vpaddq_s32(a.v[2], a.v[3])}; }
  FUCINA_INLINE I32 scaled(I32 a, Scale scale) { return {vmulq_s32(a.low, scale.low), vmulq_s32(a.high, scale.high)}; }
  FUCINA_INLINE I32 settle(Sum a, Scale scale) { return scaled(settle(a), scale); }
  FUCINA_INLINE I32 settle(ByteSum a, Scale scale) { return scaled(settle(a), scale); }
  FUCINA_INLINE ByteWeights load_bytes_plus_128(const std::uint8_t* p) {
    const U8 w = load_u8(p);
    const uint8x16_t sign = vdupq_n_u8(128);
    return {{veorq_u8(w.low, sign), veorq_u8(w.high, sign)}};
  }
  template <const std::int8_t (&table)[16]>
  FUCINA_INLINE ByteWeights look_up_bytes(U8 codes) {
    return {look_up_plus<table, 0>(codes)};
  }
  template <const std::int8_t (&table)[16], int plus>
  FUCINA_INLINE U8 look_up_plus(U8 codes) {
    const uint8x16_t values = vaddq_u8(vreinterpretq_u8_s8(vld1q_s8(table)), vdupq_n_u8(plus));
    return {vqtbl1q_u8(values, codes.low), vqtbl1q_u8(values, codes.high)};
  }
  FUCINA_INLINE Scale load_scales(const std::uint8_t* p) {
    const int16x8_t words = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
    return {vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)};
  }

  FUCINA_INLINE I32 dot_pairs(I16 a, I16 b) {
    return {vmlal_s16(vmull_s16(vget_low_s16(a.first), vget_low_s16(b.first)), vget_low_s16(a.second),
                      vget_low_s16(b.second)),
            vmlal_high_s16(vmull_high_s16(a.first, b.first), a.second, b.second)};
  }
  FUCINA_INLINE I16 interleave_i8(const std::uint8_t* a, const std::uint8_t* b) {
    return {vmovl_s8(vreinterpret_s8_u8(vld1_u8(a))), vmovl_s8(vreinterpret_s8_u8(vld1_u8(b)))};
  }
  FUCINA_INLINE I16 set_pair(const std::int16_t* p) { return {vdupq_n_s16(p[0]), vdupq_n_s16(p[1])}; }

  FUCINA_INLINE U8 load_u8(const std::uint8_t* p) { return {vld1q_u8(p), vld1q_u8(p + 16)}; }
  FUCINA_INLINE U8 low_nibbles(U8 a) {
    const uint8x16_t mask = vdupq_n_u8(15);
    return {vandq_u8(a.low, mask), vandq_u8(a.high, mask)};
  }
  FUCINA_INLINE U8 high_nibbles(U8 a) { return {vshrq_n_u8(a.low, 4), vshrq_n_u8(a.high, 4)}; }
  FUCINA_INLINE U8 either(U8 a, U8 b) { return {vorrq_u8(a.low, b.low), vorrq_u8(a.high, b.high)}; }
  template <int first, int count, int to>
  FUCINA_INLINE U8 move_bits(U8 a) {
    const uint8x16_t mask = vdupq_n_u8(((1 << count) - 1) << to);
    if constexpr (first <= to) {
      return {vandq_u8(vshlq_n_u8(a.low, to - first), mask), vandq_u8(vshlq_n_u8(a.high, to - first), mask)};
    } else {
      return {vandq_u8(vshrq_n_u8(a.low, first - to), mask), vandq_u8(vshrq_n_u8(a.high, first - to), mask)};
    }
  }
};

#if defined(__ARM_FEATURE_DOTPROD)
// Sums of products in 32 bits, one to a column.
struct NeonDot : Neon {
  static constexpr int kRows = 4;
  using Sum = I32;
  using ByteSum = I32;
  template <class S>
  static constexpr int groups_held(int) {
    return 8;
  }
  template <int four>
  FUCINA_INLINE void dot(Sum& sum, U8 w, const std::int8_t* x) {
    const int8x16_t sixteen = vld1q_s8(x + four / 4 * 16);
    sum.low = vdotq_laneq_s32(sum.low, vreinterpretq_s8_u8(w.low), sixteen, four % 4);
    sum.high = vdotq_laneq_s32(sum.high, vreinterpretq_s8_u8(w.high), sixteen, four % 4);
  }
  template <int four>
  FUCINA_INLINE void dot(ByteSum& sum, ByteWeights w, const std::int8_t* x) {
    dot<four>(sum, w.w, x);
  }
  FUCINA_INLINE I32 settle(Sum a) { return a; }
  FUCINA_INLINE I32 settle(Sum a, Scale scale) { return scaled(a, scale); }
};
#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)
// Two rows times two columns in one instruction, eight weights deep.
struct NeonMatrix : NeonDot {
  // Columns 2j and 2j + 1 of the first row, then of the second.
  struct PairSum {
    int32x4_t v[4];
  };
  FUCINA_INLINE PairSum start_pair() { return PairSum{}; }
  // Eight activations of a row and of the next: the fours number `first` and `second` of x, and those that follow them.
  // Alone, a row is its own next.
  template <int first, int second, bool has_next>
  FUCINA_INLINE int8x16_t two_rows(const std::int8_t* x) {
    if constexpr (!has_next && second == first + 1) return eight_bytes(x + 4 * first);
    const int32x4_t a = four_of_rows<has_next>(x + 4 * first), b = four_of_rows<has_next>(x + 4 * second);
    return vreinterpretq_s8_s32(vzip1q_s32(a, b));
  }
  FUCINA_INLINE void dot_eights(PairSum& sum, U8 w, U8 more, int8x16_t x) {
    sum.v[0] = vmmlaq_s32(sum.v[0], x, vreinterpretq_s8_u8(w.low));
    sum.v[1] = vmmlaq_s32(sum.v[1], x, vreinterpretq_s8_u8(w.high));
    sum.v[2] = vmmlaq_s32(sum.v[2], x, vreinterpretq_s8_u8(more.low));
    sum.v[3] = vmmlaq_s32(sum.v[3], x, vreinterpretq_s8_u8(more.high));
  }
  FUCINA_INLINE void dot_eights(PairSum& sum, ByteWeights w, ByteWeights more, int8x16_t x) {
    dot_eights(sum, w.w, more.w, x);
  }
  FUCINA_INLINE Sum first_row(PairSum a) { return {lower_halves(a.v[0], a.v[1]), lower_halves(a.v[2], a.v[3])}; }
  FUCINA_INLINE Sum second_row(PairSum a) { return {upper_halves(a.v[0], a.v[1]), upper_halves(a.v[2], a.v[3])}; }

 private:
  FUCINA_INLINE int8x16_t eight_bytes(const std::int8_t* x) {
    const int8x8_t eight = vld1_s8(x);
    return vcombine_s8(eight, eight);
  }
  template <bool has_next>
  FUCINA_INLINE int32x4_t four_of_rows(const std::int8_t* x) {
    if constexpr (has_next) return vreinterpretq_s32_s8(vcombine_s8(vld1_s8(x), vcreate_s8(0)));
    return vreinterpretq_s32_s8(four_bytes(x));
  }
  FUCINA_INLINE int32x4_t lower_halves(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
  }
  FUCINA_INLINE int32x4_t upper_halves(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
  }
};
#endif

}  // namespace fucina
