// The oracle: one value at a time, straight from the raw GGUF rows, in the order the law states and no other.
// It shares nothing with the fast tiers but the element readers and the formula of exp.
#include <cmath>
#include <cstring>
#include <vector>

#include "formats/elements.h"
#include "kernels/elementary.h"
#include "tiers/tiers.h"

namespace fucina {

namespace {

// One f32 "lane" for the shared formulas.
struct One {
  using F = float;
  static float zero() { return 0.0f; }
  static float set(float x) { return x; }
  static float add(float a, float b) { return a + b; }
  static float sub(float a, float b) { return a - b; }
  static float mul(float a, float b) { return a * b; }
  static float div(float a, float b) { return a / b; }
  static float fma(float a, float b, float c) { return std::fma(a, b, c); }
  static float max(float a, float b) { return a > b ? a : b; }
  static float min(float a, float b) { return a < b ? a : b; }
  static int round(float a) { return static_cast<int>(std::nearbyint(a)); }
  static float to_float(int n) { return static_cast<float>(n); }
  static float power_of_two(int n) { return std::ldexp(1.0f, n); }
  static float where_greater(float x, float limit, float a) { return x > limit ? a : 0.0f; }
};

float fold16(float* lanes) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; i++) lanes[i] = lanes[i] + lanes[i + width];
  }
  return lanes[0];
}

void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  float lanes[16] = {};
  for (int i = 0; i < n; i++) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
  const float mean = fold16(lanes) / static_cast<float>(n);
  const float scale = 1.0f / std::sqrt(mean + eps);
  for (int i = 0; i < n; i++) {
    const float scaled = x[i] * scale;
    y[i] = scaled * weight[i];
  }
}

void gate_silu(const float* x, const float* up, int n, float* y) {
  for (int i = 0; i < n; i++) y[i] = silu_lanes<One>(x[i]) * up[i];
}

void gate_gelu(const float* x, const float* up, int n, float* y) {
  for (int i = 0; i < n; i++) y[i] = gelu_lanes<One>(x[i]) * up[i];
}

void add_row(const float* y, int n, float* x) {
  for (int i = 0; i < n; i++) x[i] = x[i] + y[i];
}

// Quantizes one block; returns its scale.
float quantize(const float* x, int n, std::int8_t* q) {
  float top = 0.0f;
  for (int i = 0; i < n; i++) top = One::max(std::fabs(x[i]), top);
  const float inverse = top > 0.0f ? 127.0f / top : 0.0f;
  for (int i = 0; i < n; i++) {
    q[i] = static_cast<std::int8_t>(One::round(One::min(One::max(x[i] * inverse, -127.0f), 127.0f)));
  }
  return top / 127.0f;
}

int sum_of(const std::int8_t* q, int n) {
  int total = 0;
  for (int i = 0; i < n; i++) total += q[i];
  return total;
}

void quantize32(const float* x, int n, std::int8_t* q, float* d, float* d_sum, std::int32_t* sum) {
  for (int b = 0; b < n / 32; b++) {
    d[b] = quantize(x + 32 * b, 32, q + 32 * b);
    sum[b] = sum_of(q + 32 * b, 32);
    d_sum[b] = d[b] * static_cast<float>(sum[b]);
  }
}

void quantize256(const float* x, int n, std::int8_t* q, float* d, std::int16_t* sum16, std::int16_t* sum32) {
  for (int b = 0; b < n / 256; b++) d[b] = quantize(x + 256 * b, 256, q + 256 * b);
  for (int i = 0; i < n / 16; i++) sum16[i] = static_cast<std::int16_t>(sum_of(q + 16 * i, 16));
  for (int i = 0; i < n / 32; i++) sum32[i] = static_cast<std::int16_t>(sum_of(q + 32 * i, 32));
}

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
    acc = std::fma(half_to_float(w[b].d) * a.rows32.d[row * n_blocks + b], static_cast<float>(sum), acc);
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
    const float d_sum = a.rows32.d[at] * static_cast<float>(sum_of(a.rows32.q + 32 * at, 32));
    acc_min = std::fma(half_to_float(w[b].m), d_sum, acc_min);
  }
  return product_offset<Raw>(raw, a, row, 0) + acc_min;
}

// Blocks of 256 in sub-blocks of 32 with 6-bit scales and minima.
template <class Raw>
float product_k4(const std::uint8_t* raw, const LinearArgs& a, int row) {
  const auto* w = reinterpret_cast<const Raw*>(raw);
  const std::int8_t* q = a.rows256.q + static_cast<std::size_t>(row) * a.d_in;
  const int n_blocks = a.d_in / 256;
  float acc = 0.0f, acc_min = 0.0f;
  for (int b = 0; b < n_blocks; b++) {
    int sum = 0, minimum = 0;
    for (int i = 0; i < 256; i++) {
      sum += scale_k4(w[b].scales, i / 32) * element(w[b], i) * q[256 * b + i];
      minimum += min_k4(w[b].scales, i / 32) * q[256 * b + i];
    }
    const float d = a.rows256.d[row * n_blocks + b];
    acc = std::fma(half_to_float(w[b].d) * d, static_cast<float>(sum), acc);
    acc_min = std::fma(half_to_float(w[b].dmin) * d, static_cast<float>(minimum), acc_min);
  }
  return acc - acc_min;
}

// Blocks of 256 in sub-blocks of 16 with 8-bit scales.
float product_k6(const std::uint8_t* raw, const LinearArgs& a, int row) {
  const auto* w = reinterpret_cast<const RawQ6_K*>(raw);
  const std::int8_t* q = a.rows256.q + static_cast<std::size_t>(row) * a.d_in;
  const int n_blocks = a.d_in / 256;
  float acc = 0.0f;
  for (int b = 0; b < n_blocks; b++) {
    int sum = 0;
    for (int i = 0; i < 256; i++) sum += w[b].scales[i / 16] * (element(w[b], i) - 32) * q[256 * b + i];
    acc = std::fma(half_to_float(w[b].d) * a.rows256.d[row * n_blocks + b], static_cast<float>(sum), acc);
  }
  return acc;
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
    case Format::Q4_1:
      return product_minimum<RawQ4_1>(raw, a, row);
    case Format::Q5_1:
      return product_minimum<RawQ5_1>(raw, a, row);
    case Format::Q4_K:
      return product_k4<RawQ4_K>(raw, a, row);
    case Format::Q5_K:
      return product_k4<RawQ5_K>(raw, a, row);
    case Format::Q6_K:
      return product_k6(raw, a, row);
  }
  return 0.0f;
}

void linear(const LinearArgs& a, int begin, int end) {
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

void rotate(float* head, const float* angles, int d_rotary, bool halves) {
  const int pairs = d_rotary / 2;
  for (int i = 0; i < pairs; i++) {
    const int first = halves ? i : 2 * i, second = halves ? i + pairs : 2 * i + 1;
    const float a = head[first], b = head[second], c = angles[i], s = angles[pairs + i];
    const float bs = b * s, bc = b * c;
    head[first] = std::fma(a, c, 0.0f - bs);
    head[second] = std::fma(a, s, bc);
  }
}

void store_kv(const float* k, const float* v, int d_head, KvFormat format, int slot, std::uint8_t* k_block,
              std::uint8_t* v_block) {
  if (format == KvFormat::F32) {
    for (int i = 0; i < d_head; i++) {
      reinterpret_cast<float*>(k_block)[i * 64 + slot] = k[i];
      reinterpret_cast<float*>(v_block)[slot * d_head + i] = v[i];
    }
    return;
  }
  if (format == KvFormat::F16) {
    auto* keys = reinterpret_cast<std::uint16_t*>(k_block);
    auto* values = reinterpret_cast<std::uint16_t*>(v_block);
    for (int i = 0; i < d_head; i++) {
      keys[i * 64 + slot] = float_to_half(k[i]);
      values[slot * d_head + i] = float_to_half(v[i]);
    }
    return;
  }
  auto* key_scales = reinterpret_cast<float*>(k_block + 64 * d_head);
  auto* value_scales = reinterpret_cast<float*>(v_block + 64 * d_head);
  for (int b = 0; b < d_head / 32; b++) {
    std::int8_t keys[32], values[32];
    key_scales[b * 64 + slot] = quantize(k + 32 * b, 32, keys);
    value_scales[slot * (d_head / 32) + b] = quantize(v + 32 * b, 32, values);
    for (int i = 0; i < 32; i++) {
      k_block[(32 * b + i) * 64 + slot] = static_cast<std::uint8_t>(keys[i]);
      v_block[slot * d_head + 32 * b + i] = static_cast<std::uint8_t>(values[i]);
    }
  }
}

float key_at(const AttendArgs& a, const std::uint8_t* block, int slot, int i) {
  if (a.format == KvFormat::F32) return reinterpret_cast<const float*>(block)[i * 64 + slot];
  if (a.format == KvFormat::F16) return half_to_float(reinterpret_cast<const std::uint16_t*>(block)[i * 64 + slot]);
  const auto* scales = reinterpret_cast<const float*>(block + 64 * a.d_head);
  return static_cast<float>(static_cast<std::int8_t>(block[i * 64 + slot])) * scales[i / 32 * 64 + slot];
}

float value_at(const AttendArgs& a, const std::uint8_t* block, int slot, int i) {
  if (a.format == KvFormat::F32) return reinterpret_cast<const float*>(block)[slot * a.d_head + i];
  if (a.format == KvFormat::F16) {
    return half_to_float(reinterpret_cast<const std::uint16_t*>(block)[slot * a.d_head + i]);
  }
  const auto* scales = reinterpret_cast<const float*>(block + 64 * a.d_head);
  return static_cast<float>(static_cast<std::int8_t>(block[slot * a.d_head + i])) *
         scales[slot * (a.d_head / 32) + i / 32];
}

// Softmax sums relative to their maximum.
struct Partial {
  float top = -INFINITY, total = 0.0f;
  std::vector<float> sum;
};

void combine(const Partial& fresh, Partial& into) {
  const float highest = One::max(fresh.top, into.top);
  const float old_share = exp_lanes<One>(into.top - highest), new_share = exp_lanes<One>(fresh.top - highest);
  into.top = highest;
  into.total = std::fma(into.total, old_share, fresh.total * new_share);
  for (std::size_t i = 0; i < into.sum.size(); i++) {
    const float scaled = fresh.sum[i] * new_share;
    into.sum[i] = std::fma(into.sum[i], old_share, scaled);
  }
}

// The visible positions [first, last) of one block.
Partial attend_block(const AttendArgs& a, const float* q, int block, int first, int last) {
  const std::size_t at = static_cast<std::size_t>(a.blocks[block]) * a.block_bytes;
  Partial result;
  float p[64], lanes[16] = {};
  for (int slot = 0; slot < 64; slot++) {
    p[slot] = -INFINITY;
    if (block * 64 + slot < first || block * 64 + slot >= last) continue;
    float dot = 0.0f;
    for (int i = 0; i < a.d_head; i++) dot = std::fma(q[i], key_at(a, a.keys + at, slot, i), dot);
    p[slot] = dot * a.scale;
    result.top = One::max(p[slot], result.top);
  }
  for (int slot = 0; slot < 64; slot++) {
    p[slot] = exp_lanes<One>(p[slot] - result.top);
    lanes[slot % 16] = lanes[slot % 16] + p[slot];
  }
  result.total = fold16(lanes);
  for (int i = 0; i < a.d_head; i++) {
    float o = 0.0f;
    for (int slot = 0; slot < 64; slot++) {
      if (block * 64 + slot < first || block * 64 + slot >= last) continue;
      o = std::fma(p[slot], value_at(a, a.values + at, slot, i), o);
    }
    result.sum.push_back(o);
  }
  return result;
}

void attend_one(const AttendArgs& a, int query) {
  const int row = query / a.group, head = query % a.group;
  const float* q = a.q + row * a.q_stride + head * a.d_head;
  float* out = a.out + row * a.out_stride + head * a.d_head;
  const int last = a.start + row + 1;
  const int first = a.window > 0 && last > a.window ? last - a.window : 0;
  const std::vector<float> zeros(static_cast<std::size_t>(a.d_head), 0.0f);
  Partial result{.sum = zeros};
  for (int stretch = first / 256; stretch <= (last - 1) / 256; stretch++) {
    Partial of_stretch{.sum = zeros};
    for (int block = stretch * 4; block < stretch * 4 + 4; block++) {
      if (block * 64 >= last || block * 64 + 64 <= first) continue;
      combine(attend_block(a, q, block, first, last), of_stretch);
    }
    combine(of_stretch, result);
  }
  for (int i = 0; i < a.d_head; i++) out[i] = result.sum[static_cast<std::size_t>(i)] / result.total;
}

void attend(const AttendArgs& a) {
  for (int query = a.query_begin; query < a.query_end; query++) attend_one(a, query);
}

}  // namespace

const Kernels& scalar_kernels() {
  static constexpr Kernels kernels{
      .name = "scalar",
      .columns = 0,
      .linear = linear,
      .rms_norm = rms_norm,
      .gate_silu = gate_silu,
      .gate_gelu = gate_gelu,
      .add = add_row,
      .quantize32 = quantize32,
      .quantize256 = quantize256,
      .rotate = rotate,
      .store_kv = store_kv,
      .attend = attend,
  };
  return kernels;
}

}  // namespace fucina
