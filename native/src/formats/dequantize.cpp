#include "formats/dequantize.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "formats/elements.h"

namespace fucina {

FormatInfo format_info(Format format) {
  switch (format) {
    case Format::F32:
      return {1, 4, ActivationKind::Float};
    case Format::F16:
    case Format::BF16:
      return {1, 2, ActivationKind::Float};
    case Format::Q4_0:
      return {32, sizeof(RawQ4_0), ActivationKind::Block32};
    case Format::Q4_1:
      return {32, sizeof(RawQ4_1), ActivationKind::Block32};
    case Format::Q5_0:
      return {32, sizeof(RawQ5_0), ActivationKind::Block32};
    case Format::Q5_1:
      return {32, sizeof(RawQ5_1), ActivationKind::Block32};
    case Format::Q8_0:
      return {32, sizeof(RawQ8_0), ActivationKind::Block32};
    case Format::IQ4_NL:
      return {32, sizeof(RawIQ4_NL), ActivationKind::Block32};
    case Format::MXFP4:
      return {32, sizeof(RawMXFP4), ActivationKind::Block32};
    case Format::Q2_K:
      return {256, sizeof(RawQ2_K), ActivationKind::Block256};
    case Format::Q3_K:
      return {256, sizeof(RawQ3_K), ActivationKind::Block256};
    case Format::Q4_K:
      return {256, sizeof(RawQ4_K), ActivationKind::Block256};
    case Format::Q5_K:
      return {256, sizeof(RawQ5_K), ActivationKind::Block256};
    case Format::Q6_K:
      return {256, sizeof(RawQ6_K), ActivationKind::Block256};
    case Format::IQ4_XS:
      return {256, sizeof(RawIQ4_XS), ActivationKind::Block256};
  }
  throw std::invalid_argument("no kernels for tensor format number " + std::to_string(static_cast<int>(format)));
}

namespace {

template <class Raw>
const Raw* blocks(const std::uint8_t* row) {
  return reinterpret_cast<const Raw*>(row);
}

template <class Raw>
void with_offset(const std::uint8_t* row, int n, int offset, float* out) {
  for (int i = 0; i < n; i++) {
    const Raw& b = blocks<Raw>(row)[i / 32];
    out[i] = static_cast<float>(element(b, i % 32) - offset) * block_scale(b);
  }
}

template <class Raw>
void with_minimum(const std::uint8_t* row, int n, float* out) {
  for (int i = 0; i < n; i++) {
    const Raw& b = blocks<Raw>(row)[i / 32];
    const float scaled = static_cast<float>(element(b, i % 32)) * half_to_float(b.d);
    out[i] = scaled + half_to_float(b.m);
  }
}

template <class Raw>
void scaled_with_offset(const std::uint8_t* row, int n, int offset, float* out) {
  for (int i = 0; i < n; i++) {
    const Raw& b = blocks<Raw>(row)[i / 256];
    const float scale = half_to_float(b.d) * static_cast<float>(sub_scale(b, i % 256));
    out[i] = scale * static_cast<float>(element(b, i % 256) - offset);
  }
}

template <class Raw>
void scaled_with_minimum(const std::uint8_t* row, int n, float* out) {
  for (int i = 0; i < n; i++) {
    const Raw& b = blocks<Raw>(row)[i / 256];
    const float scale = half_to_float(b.d) * static_cast<float>(sub_scale(b, i % 256));
    const float minimum = half_to_float(b.dmin) * static_cast<float>(sub_minimum(b, i % 256));
    const float scaled = scale * static_cast<float>(element(b, i % 256));
    out[i] = scaled - minimum;
  }
}

void halves(const std::uint8_t* row, int n, float (*convert)(std::uint16_t), float* out) {
  for (int i = 0; i < n; i++) {
    std::uint16_t value;
    std::memcpy(&value, row + 2 * i, 2);
    out[i] = convert(value);
  }
}

}  // namespace

void dequantize_row(Format format, const std::uint8_t* row, int d_in, float* out) {
  switch (format) {
    case Format::F32:
      std::memcpy(out, row, sizeof(float) * static_cast<std::size_t>(d_in));
      return;
    case Format::F16:
      return halves(row, d_in, [](std::uint16_t h) { return half_to_float(h); }, out);
    case Format::BF16:
      return halves(row, d_in, [](std::uint16_t h) { return bfloat_to_float(h); }, out);
    case Format::Q4_0:
      return with_offset<RawQ4_0>(row, d_in, 8, out);
    case Format::Q5_0:
      return with_offset<RawQ5_0>(row, d_in, 16, out);
    case Format::Q8_0:
      return with_offset<RawQ8_0>(row, d_in, 0, out);
    case Format::IQ4_NL:
      return with_offset<RawIQ4_NL>(row, d_in, 0, out);
    case Format::MXFP4:
      return with_offset<RawMXFP4>(row, d_in, 0, out);
    case Format::Q4_1:
      return with_minimum<RawQ4_1>(row, d_in, out);
    case Format::Q5_1:
      return with_minimum<RawQ5_1>(row, d_in, out);
    case Format::Q4_K:
      return scaled_with_minimum<RawQ4_K>(row, d_in, out);
    case Format::Q5_K:
      return scaled_with_minimum<RawQ5_K>(row, d_in, out);
    case Format::Q2_K:
      return scaled_with_minimum<RawQ2_K>(row, d_in, out);
    case Format::Q3_K:
      return scaled_with_offset<RawQ3_K>(row, d_in, 4, out);
    case Format::Q6_K:
      return scaled_with_offset<RawQ6_K>(row, d_in, 32, out);
    case Format::IQ4_XS:
      return scaled_with_offset<RawIQ4_XS>(row, d_in, 0, out);
  }
}

}  // namespace fucina
