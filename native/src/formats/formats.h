// Tensor formats of GGUF files: numbers, block sizes, block layouts (facts of the file format).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fucina {

enum class Format : int {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ4_NL = 20,
  IQ4_XS = 23,
  BF16 = 30,
  MXFP4 = 39,
};

// How a format wants the activations of a product.
enum class ActivationKind { Float, Block32, Block256 };

struct FormatInfo {
  int block_weights;
  int block_bytes;
  ActivationKind activation;
};

// Throws std::invalid_argument for a number that names no format with kernels.
FormatInfo format_info(Format format);

struct RawQ4_0 {
  std::uint16_t d;
  std::uint8_t qs[16];
};
struct RawQ4_1 {
  std::uint16_t d, m;
  std::uint8_t qs[16];
};
struct RawQ5_0 {
  std::uint16_t d;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
struct RawQ5_1 {
  std::uint16_t d, m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
struct RawQ8_0 {
  std::uint16_t d;
  std::int8_t qs[32];
};
struct RawQ2_K {
  std::uint8_t scales[16];
  std::uint8_t qs[64];
  std::uint16_t d, dmin;
};
struct RawQ3_K {
  std::uint8_t hmask[32];
  std::uint8_t qs[64];
  std::uint8_t scales[12];
  std::uint16_t d;
};
struct RawQ4_K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qs[128];
};
struct RawQ5_K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];
  std::uint8_t qs[128];
};
struct RawQ6_K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  std::uint16_t d;
};
struct RawIQ4_NL {
  std::uint16_t d;
  std::uint8_t qs[16];
};
struct RawIQ4_XS {
  std::uint16_t d, scales_h;
  std::uint8_t scales_l[4];
  std::uint8_t qs[128];
};
struct RawMXFP4 {
  std::uint8_t e;
  std::uint8_t qs[16];
};
static_assert(sizeof(RawQ4_0) == 18 && sizeof(RawQ4_1) == 20 && sizeof(RawQ5_0) == 22 && sizeof(RawQ5_1) == 24);
static_assert(sizeof(RawQ8_0) == 34 && sizeof(RawQ4_K) == 144 && sizeof(RawQ5_K) == 176 && sizeof(RawQ6_K) == 210);
static_assert(sizeof(RawQ2_K) == 84 && sizeof(RawQ3_K) == 110);
static_assert(sizeof(RawIQ4_NL) == 18 && sizeof(RawIQ4_XS) == 136 && sizeof(RawMXFP4) == 17);

// What the sixteen codes of IQ4_NL and IQ4_XS stand for, before any scale.
inline constexpr std::int8_t kIQ4Codes[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// Twice what the sixteen codes of MXFP4 stand for (E2M1), so that all are integers.
inline constexpr std::int8_t kE2M1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace fucina
