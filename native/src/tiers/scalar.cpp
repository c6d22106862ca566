// The oracle: one value at a time, in the order the law states and no other; its products are those of raw.cpp.
// It shares nothing with the fast tiers but the element readers and the formula of exp.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "kernels/elementary.h"
#include "tiers/raw.h"
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

void add_scaled(float scale, const float* y, int n, float* x) {
  for (int i = 0; i < n; i++) x[i] = std::fma(scale, y[i], x[i]);
}

void softmax(float* x, int n) {
  const float top = *std::max_element(x, x + n);
  float lanes[16] = {};
  for (int i = 0; i < n; i++) {
    x[i] = exp_lanes<One>(x[i] - top);
    lanes[i % 16] += x[i];
  }
  const float total = fold16(lanes);
  for (int i = 0; i < n; i++) x[i] /= total;
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

// Group g of a row (n_in_group values) lies at g * n_in_group * rows: the row's block of rows is interleaved.
template <class T>
T& in_block(T* of_row, int n_in_group, int rows, int k) {
  return of_row[k / n_in_group * n_in_group * rows + k % n_in_group];
}

void quantize32(const float* x, int n, Rows32 row, int rows) {
  for (int b = 0; b < n / 32; b++) {
    std::int8_t q[32];
    const float d = quantize(x + 32 * b, 32, q);
    for (int i = 0; i < 32; i++) in_block(row.q, 4, rows, 32 * b + i) = q[i];
    row.d[b * rows] = d;
    row.sum[b * rows] = sum_of(q, 32);
    row.d_sum[b * rows] = d * static_cast<float>(sum_of(q, 32));
  }
}

void quantize256(const float* x, int n, Rows256 row, int rows) {
  for (int b = 0; b < n / 256; b++) {
    std::int8_t q[256];
    row.d[b * rows] = quantize(x + 256 * b, 256, q);
    for (int i = 0; i < 256; i++) in_block(row.q, 4, rows, 256 * b + i) = q[i];
    for (int s = 0; s < 16; s++) {
      in_block(row.sum16, 2, rows, 16 * b + s) = static_cast<std::int16_t>(sum_of(q + 16 * s, 16));
    }
    for (int s = 0; s < 8; s++) {
      in_block(row.sum32, 2, rows, 8 * b + s) = static_cast<std::int16_t>(sum_of(q + 32 * s, 32));
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

// The positions that a query sees: [first, last).
struct Visible {
  int first, last;
};

// Those of one block.
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

Visible visible(const AttendArgs& a, int query) {
  const int last = a.start + query / a.group + 1;
  return {a.window > 0 && last > a.window ? last - a.window : 0, last};
}

Partial attend_stretch(const AttendArgs& a, int query, int stretch) {
  const float* q = a.q + query / a.group * a.q_stride + query % a.group * a.d_head;
  const auto [first, last] = visible(a, query);
  Partial result{.sum = std::vector<float>(static_cast<std::size_t>(a.d_head), 0.0f)};
  for (int block = stretch * kStretchBlocks; block < (stretch + 1) * kStretchBlocks; block++) {
    if (block * 64 >= last || block * 64 + 64 <= first) continue;
    combine(attend_block(a, q, block, first, last), result);
  }
  return result;
}

// The same task for one of its KV heads.
AttendArgs of_head(AttendArgs a, int head) {
  const int queries = a.query_end - a.query_begin;
  a.keys += static_cast<std::size_t>(head) * a.head_bytes;
  a.values += static_cast<std::size_t>(head) * a.head_bytes;
  a.q += head * a.group * a.d_head;
  a.out += head * a.group * a.d_head;
  if (a.partials) a.partials += head * queries * (a.d_head + 2);
  a.heads = 1;
  return a;
}

void write_result(const AttendArgs& a, int query, const Partial& result) {
  float* out = a.out + query / a.group * a.out_stride + query % a.group * a.d_head;
  for (int i = 0; i < a.d_head; i++) out[i] = result.sum[static_cast<std::size_t>(i)] / result.total;
}

float* partial_at(const AttendArgs& a, int stretch, int query) {
  return a.partials + static_cast<std::size_t>(stretch) * a.partials_stride + (query - a.query_begin) * (a.d_head + 2);
}

void attend(const AttendArgs& a) {
  if (a.heads > 1) {
    for (int h = 0; h < a.heads; h++) attend(of_head(a, h));
    return;
  }
  for (int query = a.query_begin; query < a.query_end; query++) {
    const auto [first, last] = visible(a, query);
    Partial result{.sum = std::vector<float>(static_cast<std::size_t>(a.d_head), 0.0f)};
    const int begin = a.partials ? a.stretch_begin : first / 256, end = a.partials ? a.stretch_end : (last + 255) / 256;
    for (int stretch = begin; stretch < end; stretch++) {
      const Partial fresh = attend_stretch(a, query, stretch);
      if (a.partials) {
        float* out = partial_at(a, stretch, query);
        out[0] = fresh.top;
        out[1] = fresh.total;
        std::copy(fresh.sum.begin(), fresh.sum.end(), out + 2);
      } else if (fresh.top != -INFINITY) {
        combine(fresh, result);
      }
    }
    if (!a.partials) write_result(a, query, result);
  }
}

void gather(const AttendArgs& a) {
  if (a.heads > 1) {
    for (int h = 0; h < a.heads; h++) gather(of_head(a, h));
    return;
  }
  for (int query = a.query_begin; query < a.query_end; query++) {
    Partial result{.sum = std::vector<float>(static_cast<std::size_t>(a.d_head), 0.0f)};
    for (int stretch = a.stretch_begin; stretch < a.stretch_end; stretch++) {
      const float* partial = partial_at(a, stretch, query);
      if (partial[0] == -INFINITY) continue;
      combine({partial[0], partial[1], {partial + 2, partial + 2 + a.d_head}}, result);
    }
    write_result(a, query, result);
  }
}

}  // namespace

const Kernels& scalar_kernels() {
  static constexpr Kernels kernels{
      .name = "scalar",
      .columns = 0,
      .eights = false,
      .rows = 1,
      .linear = linear_raw,
      .rms_norm = rms_norm,
      .gate_silu = gate_silu,
      .gate_gelu = gate_gelu,
      .add = add_row,
      .add_scaled = add_scaled,
      .softmax = softmax,
      .quantize32 = quantize32,
      .quantize256 = quantize256,
      .rotate = rotate,
      .store_kv = store_kv,
      .attend = attend,
      .gather = gather,
      .multiply_adds = nullptr,
  };
  return kernels;
}

}  // namespace fucina
