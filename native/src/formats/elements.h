// One element at a time: the plainest reading of every block layout. Packing, dequantizing and the scalar oracle use
// it.
#pragma once

#include <bit>

#include "base/half.h"
#include "formats/formats.h"

namespace fucina {

// The integer that a block stores for element k, before any scale: what its code stands for in the formats that have a
// table, the code itself in the others; offsets (the -8 of Q4_0, ...) not subtracted.
FUCINA_INLINE int element(const RawQ4_0& b, int k) { return k < 16 ? b.qs[k] & 15 : b.qs[k - 16] >> 4; }
FUCINA_INLINE int element(const RawQ4_1& b, int k) { return k < 16 ? b.qs[k] & 15 : b.qs[k - 16] >> 4; }
template <class Raw5>
FUCINA_INLINE int element5(const Raw5& b, int k) {
  const int high = (b.qh[k / 8] >> (k % 8)) & 1;
  return (k < 16 ? b.qs[k] & 15 : b.qs[k - 16] >> 4) | high << 4;
}
FUCINA_INLINE int element(const RawQ5_0& b, int k) { return element5(b, k); }
FUCINA_INLINE int element(const RawQ5_1& b, int k) { return element5(b, k); }
FUCINA_INLINE int element(const RawQ8_0& b, int k) { return b.qs[k]; }
FUCINA_INLINE int element(const RawQ4_K& b, int k) {
  const std::uint8_t byte = b.qs[k / 64 * 32 + k % 32];
  return k % 64 < 32 ? byte & 15 : byte >> 4;
}
FUCINA_INLINE int element(const RawQ5_K& b, int k) {
  const std::uint8_t byte = b.qs[k / 64 * 32 + k % 32];
  const int high = (b.qh[k % 32] >> (k / 32)) & 1;
  return (k % 64 < 32 ? byte & 15 : byte >> 4) | high << 4;
}
FUCINA_INLINE int element(const RawQ6_K& b, int k) {
  const int half = k / 128, in_half = k % 128, quarter = in_half / 32, lane = in_half % 32;
  const std::uint8_t low = b.ql[half * 64 + quarter % 2 * 32 + lane];
  const int high = (b.qh[half * 32 + lane] >> (2 * quarter)) & 3;
  return (quarter < 2 ? low & 15 : low >> 4) | high << 4;
}
FUCINA_INLINE int element(const RawQ2_K& b, int k) { return (b.qs[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2)) & 3; }
FUCINA_INLINE int element(const RawQ3_K& b, int k) {
  const int low = (b.qs[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2)) & 3;
  const int high = (b.hmask[k % 32] >> (k / 32)) & 1;
  return low | high << 2;
}
FUCINA_INLINE int nibble32(const std::uint8_t* qs, int k) { return k < 16 ? qs[k] & 15 : qs[k - 16] >> 4; }
FUCINA_INLINE int element(const RawIQ4_NL& b, int k) { return kIQ4Codes[nibble32(b.qs, k)]; }
FUCINA_INLINE int element(const RawIQ4_XS& b, int k) { return kIQ4Codes[nibble32(b.qs + k / 32 * 16, k % 32)]; }
FUCINA_INLINE int element(const RawMXFP4& b, int k) { return kE2M1Doubled[nibble32(b.qs, k)]; }

// The scale of a block whose elements share one, as a float.
template <class Raw>
FUCINA_INLINE float block_scale(const Raw& b) {
  return half_to_float(b.d);
}
// 2^(e - 128): half of what the exponent byte says, since elements are doubled. 0 and 1 give subnormal floats; the byte
// 255 is read as a number like any other, as ggml does.
FUCINA_INLINE float block_scale(const RawMXFP4& b) {
  return std::bit_cast<float>(b.e < 2 ? 0x00200000u << b.e : static_cast<std::uint32_t>(b.e - 1) << 23);
}

// The 6-bit scale and minimum of 32-weight sub-block j in the packed 12 bytes of Q4_K and Q5_K.
FUCINA_INLINE int scale_k4(const std::uint8_t* s, int j) {
  return j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
}
FUCINA_INLINE int min_k4(const std::uint8_t* s, int j) {
  return j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
}
// The 6-bit scale of 16-weight sub-block j of Q3_K, and of 32-weight sub-block j of IQ4_XS; 32 not subtracted.
FUCINA_INLINE int scale_k3(const std::uint8_t* s, int j) {
  const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
  return low | ((s[8 + j % 4] >> (j / 4 * 2)) & 3) << 4;
}
FUCINA_INLINE int scale_iq4(const RawIQ4_XS& b, int j) {
  const int low = (b.scales_l[j / 2] >> (j % 2 * 4)) & 15;
  return low | ((b.scales_h >> (2 * j)) & 3) << 4;
}

// The integer scale of the sub-block that element k lies in, offset subtracted; and its minimum, where there are
// minima.
FUCINA_INLINE int sub_scale(const RawQ2_K& b, int k) { return b.scales[k / 16] & 15; }
FUCINA_INLINE int sub_scale(const RawQ3_K& b, int k) { return scale_k3(b.scales, k / 16) - 32; }
FUCINA_INLINE int sub_scale(const RawQ4_K& b, int k) { return scale_k4(b.scales, k / 32); }
FUCINA_INLINE int sub_scale(const RawQ5_K& b, int k) { return scale_k4(b.scales, k / 32); }
FUCINA_INLINE int sub_scale(const RawQ6_K& b, int k) { return b.scales[k / 16]; }
FUCINA_INLINE int sub_scale(const RawIQ4_XS& b, int k) { return scale_iq4(b, k / 32) - 32; }
FUCINA_INLINE int sub_minimum(const RawQ2_K& b, int k) { return b.scales[k / 16] >> 4; }
FUCINA_INLINE int sub_minimum(const RawQ4_K& b, int k) { return min_k4(b.scales, k / 32); }
FUCINA_INLINE int sub_minimum(const RawQ5_K& b, int k) { return min_k4(b.scales, k / 32); }

}  // namespace fucina
