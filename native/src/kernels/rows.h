// Work on single rows: norms, gating, quantization, rotation.
#pragma once

#include <cstring>

#include "kernels/elementary.h"
#include "kernels/kernels.h"

namespace fucina {

// Sixteen strided lanes, folded in halves: the one order in which this house sums a row.
template <class V>
FUCINA_INLINE float fold16(typename V::F low, typename V::F high) {
  float lanes[8];
  V::store(lanes, V::add(low, high));
  for (int width = 4; width >= 1; width /= 2) {
    for (int i = 0; i < width; i++) lanes[i] = lanes[i] + lanes[i + width];
  }
  return lanes[0];
}

template <class V>
void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  auto low = V::zero(), high = V::zero();
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const auto a = V::load(x + i), b = V::load(x + i + 8);
    low = V::fma(a, a, low);
    high = V::fma(b, b, high);
  }
  if (i < n) {
    const auto a = V::load(x + i);
    low = V::fma(a, a, low);
  }
  const float mean = fold16<V>(low, high) / static_cast<float>(n);
  const auto scale = V::set(1.0f / __builtin_sqrtf(mean + eps));
  for (i = 0; i < n; i += 8) V::store(y + i, V::mul(V::mul(V::load(x + i), scale), V::load(weight + i)));
}

template <class V>
void gate_silu(const float* x, const float* up, int n, float* y) {
  for (int i = 0; i < n; i += 8) V::store(y + i, V::mul(silu_lanes<V>(V::load(x + i)), V::load(up + i)));
}

template <class V>
void gate_gelu(const float* x, const float* up, int n, float* y) {
  for (int i = 0; i < n; i += 8) V::store(y + i, V::mul(gelu_lanes<V>(V::load(x + i)), V::load(up + i)));
}

template <class V>
void add_row(const float* y, int n, float* x) {
  for (int i = 0; i < n; i += 8) V::store(x + i, V::add(V::load(x + i), V::load(y + i)));
}

template <class V>
void add_scaled(float scale, const float* y, int n, float* x) {
  const auto factor = V::set(scale);
  for (int i = 0; i < n; i += 8) V::store(x + i, V::fma(factor, V::load(y + i), V::load(x + i)));
}

template <class V>
void softmax(float* x, int n) {
  auto tops = V::load(x);
  for (int i = 8; i < n; i += 8) tops = V::max(V::load(x + i), tops);
  float lanes[8];
  V::store(lanes, tops);
  for (int i = 1; i < 8; i++) lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
  const auto top = V::set(lanes[0]);
  auto low = V::zero(), high = V::zero();
  for (int i = 0; i < n; i += 8) {
    const auto e = exp_lanes<V>(V::sub(V::load(x + i), top));
    V::store(x + i, e);
    auto& sum = i % 16 == 0 ? low : high;
    sum = V::add(sum, e);
  }
  const auto total = V::set(fold16<V>(low, high));
  for (int i = 0; i < n; i += 8) V::store(x + i, V::div(V::load(x + i), total));
}

template <class V>
FUCINA_INLINE float largest_magnitude(const float* x, int n) {
  auto top = V::zero();
  for (int i = 0; i < n; i += 8) top = V::max(V::abs(V::load(x + i)), top);
  float lanes[8];
  V::store(lanes, top);
  for (int i = 1; i < 8; i++) lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
  return lanes[0];
}

// Eight values to int8; the clamp also turns NaN into a number, so that every tier stays defined.
template <class V>
FUCINA_INLINE typename V::I32 to_int8(typename V::F x, typename V::F inverse) {
  return V::round(V::min(V::max(V::mul(x, inverse), V::set(-127.0f)), V::set(127.0f)));
}

// Eight values of a row to their place between the other rows'.
FUCINA_INLINE void spread8(const std::int8_t* lanes, int rows, std::int8_t* q) {
  std::memcpy(q, lanes, 4);
  std::memcpy(q + 4 * rows, lanes + 4, 4);
}

template <class V>
void quantize32(const float* x, int n, Rows32 row, int rows) {
  for (int block = 0; block < n / 32; block++, x += 32) {
    const float top = largest_magnitude<V>(x, 32);
    const auto inverse = V::set(top > 0 ? 127.0f / top : 0.0f);
    auto total = V::zero_i32();
    for (int i = 0; i < 32; i += 8, row.q += 8 * rows) {
      const auto lanes = to_int8<V>(V::load(x + i), inverse);
      total = V::add(total, lanes);
      std::int8_t bytes[8];
      V::store_bytes(bytes, lanes);
      spread8(bytes, rows, row.q);
    }
    const int at = block * rows;
    row.d[at] = top / 127.0f;
    row.sum[at] = V::sum(total);
    row.d_sum[at] = row.d[at] * static_cast<float>(row.sum[at]);
  }
}

template <class V>
void quantize256(const float* x, int n, Rows256 row, int rows) {
  for (int block = 0; block < n / 256; block++, x += 256) {
    const float top = largest_magnitude<V>(x, 256);
    const auto inverse = V::set(top > 0 ? 127.0f / top : 0.0f);
    std::int16_t sums[16];
    for (int part = 0; part < 16; part++, row.q += 16 * rows) {
      const auto a = to_int8<V>(V::load(x + 16 * part), inverse);
      const auto b = to_int8<V>(V::load(x + 16 * part + 8), inverse);
      std::int8_t bytes[16];
      V::store_bytes(bytes, a);
      V::store_bytes(bytes + 8, b);
      spread8(bytes, rows, row.q);
      spread8(bytes + 8, rows, row.q + 8 * rows);
      sums[part] = static_cast<std::int16_t>(V::sum(V::add(a, b)));
    }
    for (int part = 0; part < 16; part++) row.sum16[(8 * block + part / 2) * rows * 2 + part % 2] = sums[part];
    for (int part = 0; part < 8; part++) {
      const int two = sums[2 * part] + sums[2 * part + 1];
      row.sum32[(4 * block + part / 2) * rows * 2 + part % 2] = static_cast<std::int16_t>(two);
    }
    row.d[block * rows] = top / 127.0f;
  }
}

template <class V>
void rotate(float* head, const float* angles, int d_rotary, bool halves) {
  const int pairs = d_rotary / 2;
  const float *cosine = angles, *sine = angles + pairs;
  int i = 0;
  if (halves) {
    for (; i + 8 <= pairs; i += 8) {
      const auto a = V::load(head + i), b = V::load(head + pairs + i);
      const auto c = V::load(cosine + i), s = V::load(sine + i);
      V::store(head + i, V::fma(a, c, V::sub(V::zero(), V::mul(b, s))));
      V::store(head + pairs + i, V::fma(a, s, V::mul(b, c)));
    }
  }
  for (; i < pairs; i++) {
    float* first = halves ? head + i : head + 2 * i;
    float* second = halves ? head + pairs + i : head + 2 * i + 1;
    const float a = *first, b = *second;
    *first = fused(a, cosine[i], 0.0f - b * sine[i]);
    *second = fused(a, sine[i], b * cosine[i]);
  }
}

}  // namespace fucina
