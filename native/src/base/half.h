// 16-bit floats to and from f32, exactly as the hardware converts them (round to nearest even).
// Everything is force-inlined: these functions are compiled into files of different instruction tiers, and the linker
// must never merge a copy that uses newer instructions into an older tier.
#pragma once

#include <bit>
#include <cstdint>

#define FUCINA_INLINE static inline __attribute__((always_inline))

namespace fucina {

FUCINA_INLINE float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 31u;
  const std::uint32_t mantissa = h & 0x3ffu;
  if (exponent == 31) {  // infinity, NaN (made quiet, as vcvtph2ps does)
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa ? (mantissa << 13) | 0x400000u : 0u));
  }
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact
    const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

FUCINA_INLINE std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65536 and up: infinity
  if (magnitude < 0x38800000u) {  // subnormal half: adding 0.5 rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

FUCINA_INLINE float bfloat_to_float(std::uint16_t b) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16);
}

}  // namespace fucina
