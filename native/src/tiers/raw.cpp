#include "tiers/raw.h"

#include <cmath>
#include <cstring>

#include "formats/elements.h"

namespace fucina {

namespace {

// Blocks of 32 with an offset: acc = fma(d_w * d_x, sum of (w - offset) * q, acc).
template <class Raw>
float product_offset(const std::uint8_t* raw, const LinearArgs& a, int row, int offset) {
  const auto* w = reinterpret_cast<const Raw*>(raw);
  const std::int8_t* q = a.rows32.q + static_cast<std::size_t>(row) * a.d_in;
  const int n_blocks = a.d_in / 32;
  float acc = 0.0f;
  for (int b = 0; b < n_blocks; b++) {
    int sum = 0;
    for (int i = 0; i < 32; i++) sum += (element(w[b], i) - offset) * q[32 * b + i];
    acc = std::fma(block_scale(w[b]) * a.rows32.d[row * n_blocks + b], static_cast<float>(sum), acc);
  }
  return acc;
}

// Blocks of 32 with a minimum: a second chain, acc_min = fma(m_w, d_x * sum of q, acc_min), added at the end.
template <class Raw>
float product_minimum(const std::uint8_t* raw, const LinearArgs& a, int row) {
  const auto* w = reinterpret_cast<const Raw*>(raw);
  float acc_min = 0.0f;
  const int n_blocks = a.d_in / 32;
  for (int b = 0; b < n_blocks; b++) {
    const std::size_t at = static_cast<std::size_t>(row) * n_blocks + b;
    int sum = 0;
    for (int i = 0; i < 32; i++) sum += a.rows32.q[32 * at + i];
    const float d_sum = a.rows32.d[at] * static_cast<float>(sum);
    acc_min = std::fma(half_to_float(w[b].m), d_sum, acc_min);
  }
  return product_offset<Raw>(raw, a, row, 0) + acc_min;
}

// Blocks of 256 in sub-blocks with an integer scale: acc = fma(d_w * d_x, sum of scale * (w - offset) * q, acc).
template <class Raw>
float product_scaled(const std::uint8_t* raw, const LinearArgs& a, int row, int offset) {
  const auto* w = reinterpret_cast<const Raw*>(raw);
  const std::int8_t* q = a.rows256.q + static_cast<std::size_t>(row) * a.d_in;
  const int n_blocks = a.d_in / 256;
  float acc = 0.0f;
  for (int b = 0; b < n_blocks; b++) {
    int sum = 0;
    for (int i = 0; i < 256; i++) sum += sub_scale(w[b], i) * (element(w[b], i) - offset) * q[256 * b + i];
    acc = std::fma(half_to_float(w[b].d) * a.rows256.d[row * n_blocks + b], static_cast<float>(sum), acc);
  }
  return acc;
}

// The same with integer minima: a second chain, acc_min = fma(dmin_w * d_x, sum of minimum * q, acc_min), subtracted.
template <class Raw>
float product_scaled_minimum(const std::uint8_t* raw, const LinearArgs& a, int row) {
  const auto* w = reinterpret_cast<const Raw*>(raw);
  const std::int8_t* q = a.rows256.q + static_cast<std::size_t>(row) * a.d_in;
  const int n_blocks = a.d_in / 256;
  float acc_min = 0.0f;
  for (int b = 0; b < n_blocks; b++) {
    int sum = 0;
    for (int i = 0; i < 256; i++) sum += sub_minimum(w[b], i) * q[256 * b + i];
    acc_min = std::fma(half_to_float(w[b].dmin) * a.rows256.d[row * n_blocks + b], static_cast<float>(sum), acc_min);
  }
  return product_scaled<Raw>(raw, a, row, 0) - acc_min;
}

template <class Load>
float product_float(const LinearArgs& a, int row, Load load) {
  float acc = 0.0f;
  for (int k = 0; k < a.d_in; k++) acc = std::fma(load(k), a.x[static_cast<std::size_t>(row) * a.d_in + k], acc);
  return acc;
}

template <class T>
T read(const std::uint8_t* raw, int k) {
  T value;
  std::memcpy(&value, raw + sizeof(T) * static_cast<std::size_t>(k), sizeof(T));
  return value;
}

float product(const LinearArgs& a, const std::uint8_t* raw, int row) {
  switch (a.format) {
    case Format::F32:
      return product_float(a, row, [&](int k) { return read<float>(raw, k); });
    case Format::F16:
      return product_float(a, row, [&](int k) { return half_to_float(read<std::uint16_t>(raw, k)); });
    case Format::BF16:
      return product_float(a, row, [&](int k) { return bfloat_to_float(read<std::uint16_t>(raw, k)); });
    case Format::Q4_0:
      return product_offset<RawQ4_0>(raw, a, row, 8);
    case Format::Q5_0:
      return product_offset<RawQ5_0>(raw, a, row, 16);
    case Format::Q8_0:
      return product_offset<RawQ8_0>(raw, a, row, 0);
    case Format::IQ4_NL:
      return product_offset<RawIQ4_NL>(raw, a, row, 0);
    case Format::MXFP4:
      return product_offset<RawMXFP4>(raw, a, row, 0);
    case Format::Q4_1:
      return product_minimum<RawQ4_1>(raw, a, row);
    case Format::Q5_1:
      return product_minimum<RawQ5_1>(raw, a, row);
    case Format::Q2_K:
      return product_scaled_minimum<RawQ2_K>(raw, a, row);
    case Format::Q3_K:
      return product_scaled<RawQ3_K>(raw, a, row, 4);
    case Format::Q4_K:
      return product_scaled_minimum<RawQ4_K>(raw, a, row);
    case Format::Q5_K:
      return product_scaled_minimum<RawQ5_K>(raw, a, row);
    case Format::Q6_K:
      return product_scaled<RawQ6_K>(raw, a, row, 32);
    case Format::IQ4_XS:
      return product_scaled<RawIQ4_XS>(raw, a, row, 0);
  }
  return 0.0f;
}

}  // namespace

void linear_raw(const LinearArgs& a, int begin, int end) {
  const FormatInfo info = format_info(a.format);
  const std::size_t row_bytes = static_cast<std::size_t>(a.d_in / info.block_weights) * info.block_bytes;
  for (int column = begin; column < end; column++) {
    for (int row = 0; row < a.rows; row++) {
      float y = product(a, a.weights + column * row_bytes, row);
      float* out = a.out + row * a.out_stride + column;
      if (a.bias) y = y + a.bias[column];
      *out = a.accumulate ? *out + y : y;
    }
  }
}

}  // namespace fucina
