// One element at a time: the plainest reading of every block layout. Packing, dequantizing and the scalar oracle use
// it.
#pragma once

#include "base/half.h"
#include "formats/formats.h"

namespace fucina {

// The integer that a block stores for element k, before any scale; offsets (the -8 of Q4_0, ...) not subtracted.
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

// The 6-bit scale and minimum of 32-weight sub-block j in the packed 12 bytes of Q4_K and Q5_K.
FUCINA_INLINE int scale_k4(const std::uint8_t* s, int j) {
  return j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
}
FUCINA_INLINE int min_k4(const std::uint8_t* s, int j) {
  return j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
}

}  // namespace fucina
