// Softmax attention over the blocks of the KV pool.
//
// Arithmetic, per query and block of 64 positions: scores are one fma chain over d_head ascending, times `scale`;
// m = their maximum over visible positions, p = exp(score - m), l = sum of p (sixteen strided lanes), o = one fma chain
// of p * v over positions ascending. Blocks combine in ascending order: M' = max(M, m), a = exp(M - M'), b = exp(m -
// M'), L = fma(L, a, l * b), O = fma(O, a, o * b). The result is O / L. K is stored transposed, so that score lanes run
// over positions.
#pragma once

#include "kernels/kernels.h"
#include "kernels/rows.h"

namespace fucina {

constexpr int kPositions = 64;
constexpr float kMinusInfinity = -__builtin_inff();

// One head's K (as (d_head, 64)) or V (as (64, d_head)) of a block to f32.
template <class V>
FUCINA_INLINE void widen(const std::uint8_t* block, int d_head, bool q8, bool transposed, float* out) {
  const int n = kPositions * d_head;
  if (!q8) {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(block);
    for (int i = 0; i < n; i += 8) V::store(out + i, V::load_half(halves + i));
    return;
  }
  const auto* bytes = reinterpret_cast<const std::int8_t*>(block);
  const auto* scales = reinterpret_cast<const float*>(block + n);
  for (int i = 0; i < n; i += 8) {
    const auto q = V::load_bytes(bytes + i);
    const auto d =
        transposed ? V::load(scales + i / kPositions / 32 * kPositions + i % kPositions) : V::set(scales[i / 32]);
    V::store(out + i, V::mul(q, d));
  }
}

// scores[64] = q . K, scaled; K is (d_head, 64).
template <class V>
FUCINA_INLINE void score(const float* q, const float* keys, int d_head, float scale, float* scores) {
  typename V::F acc[8];
  for (int j = 0; j < 8; j++) acc[j] = V::zero();
  for (int d = 0; d < d_head; d++, keys += kPositions) {
    const auto x = V::set(q[d]);
    for (int j = 0; j < 8; j++) acc[j] = V::fma(x, V::load(keys + 8 * j), acc[j]);
  }
  for (int j = 0; j < 8; j++) V::store(scores + 8 * j, V::mul(acc[j], V::set(scale)));
}

// Scores of positions [begin, end) to weights exp(score - maximum), zero elsewhere. Returns the maximum; sum in *total.
template <class V>
FUCINA_INLINE float soften(float* scores, int begin, int end, float* total) {
  for (int i = 0; i < begin; i++) scores[i] = kMinusInfinity;
  for (int i = end; i < kPositions; i++) scores[i] = kMinusInfinity;
  auto top = V::load(scores);
  for (int j = 1; j < 8; j++) top = V::max(V::load(scores + 8 * j), top);
  float lanes[8];
  V::store(lanes, top);
  for (int i = 1; i < 8; i++) lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
  const auto maximum = V::set(lanes[0]);
  auto low = V::zero(), high = V::zero();
  for (int j = 0; j < 8; j++) {
    const auto p = exp_lanes<V>(V::sub(V::load(scores + 8 * j), maximum));
    V::store(scores + 8 * j, p);
    (j % 2 ? high : low) = V::add(j % 2 ? high : low, p);
  }
  *total = fold16<V>(low, high);
  return lanes[0];
}

// out[lanes * 8] += over positions [begin, end) of p * v, for `lanes` vectors of one head from `values` on.
template <class V, int lanes>
FUCINA_INLINE void weigh(const float* p, const float* values, int d_head, int begin, int end, float* out) {
  typename V::F acc[lanes];
  for (int j = 0; j < lanes; j++) acc[j] = V::zero();
  for (int i = begin; i < end; i++) {
    const auto x = V::set(p[i]);
    const float* v = values + static_cast<std::size_t>(i) * d_head;
    for (int j = 0; j < lanes; j++) acc[j] = V::fma(x, V::load(v + 8 * j), acc[j]);
  }
  for (int j = 0; j < lanes; j++) V::store(out + 8 * j, acc[j]);
}

// O = fma(O, a, o * b)
template <class V>
FUCINA_INLINE void combine(const float* o, float a, float b, int d_head, float* sum) {
  for (int i = 0; i < d_head; i += 8) {
    V::store(sum + i, V::fma(V::load(sum + i), V::set(a), V::mul(V::load(o + i), V::set(b))));
  }
}

template <class V>
FUCINA_INLINE float exp_one(float x) {
  float lanes[8];
  V::store(lanes, exp_lanes<V>(V::set(x)));
  return lanes[0];
}

// The positions that query i sees: [first, last).
struct Visible {
  int first, last;
};
FUCINA_INLINE Visible visible(const AttendArgs& a, int i) {
  const int last = a.start + i / a.group + 1;
  return {a.window > 0 && last > a.window ? last - a.window : 0, last};
}

template <class V>
void attend(const AttendArgs& a) {
  const int n = a.query_end - a.query_begin, d = a.d_head;
  float* keys = a.scratch;
  float* values = keys + kPositions * d;
  float* sums = values + kPositions * d;  // (n, d)
  float* o = sums + static_cast<std::size_t>(kQueriesPerTask) * d;
  float* scores = o + d;
  float* tops = scores + kPositions;
  float* totals = tops + kQueriesPerTask;
  for (int i = 0; i < n * d; i++) sums[i] = 0.0f;
  for (int i = 0; i < n; i++) {
    tops[i] = kMinusInfinity;
    totals[i] = 0.0f;
  }
  const int first_block = visible(a, a.query_begin).first / kPositions;
  const int last_block = (visible(a, a.query_end - 1).last - 1) / kPositions;
  for (int block = first_block; block <= last_block; block++) {
    const std::size_t at = static_cast<std::size_t>(a.blocks[block]) * a.block_bytes;
    widen<V>(a.keys + at, d, a.q8, true, keys);
    widen<V>(a.values + at, d, a.q8, false, values);
    for (int i = 0; i < n; i++) {
      const Visible seen = visible(a, a.query_begin + i);
      const int begin = seen.first > block * kPositions ? seen.first - block * kPositions : 0;
      const int end = seen.last < (block + 1) * kPositions ? seen.last - block * kPositions : kPositions;
      if (begin >= end) continue;
      const int row = (a.query_begin + i) / a.group, head = (a.query_begin + i) % a.group;
      score<V>(a.q + row * a.q_stride + head * d, keys, d, a.scale, scores);
      float total;
      const float top = soften<V>(scores, begin, end, &total);
      int j = 0;
      for (; j + 64 <= d; j += 64) weigh<V, 8>(scores, values + j, d, begin, end, o + j);
      for (; j < d; j += 8) weigh<V, 1>(scores, values + j, d, begin, end, o + j);
      const float highest = top > tops[i] ? top : tops[i];
      const float old_share = exp_one<V>(tops[i] - highest), new_share = exp_one<V>(top - highest);
      totals[i] = fused(totals[i], old_share, total * new_share);
      combine<V>(o, old_share, new_share, d, sums + static_cast<std::size_t>(i) * d);
      tops[i] = highest;
    }
  }
  for (int i = 0; i < n; i++) {
    const int row = (a.query_begin + i) / a.group, head = (a.query_begin + i) % a.group;
    float* out = a.out + row * a.out_stride + head * d;
    for (int j = 0; j < d; j += 8) {
      V::store(out + j, V::div(V::load(sums + static_cast<std::size_t>(i) * d + j), V::set(totals[i])));
    }
  }
}

template <class V>
void store_kv(const float* k, const float* v, int d_head, bool q8, int slot, std::uint8_t* k_block,
              std::uint8_t* v_block) {
  if (!q8) {
    auto* keys = reinterpret_cast<std::uint16_t*>(k_block);
    auto* values = reinterpret_cast<std::uint16_t*>(v_block) + slot * d_head;
    for (int i = 0; i < d_head; i += 8) {
      std::uint16_t lanes[8];
      V::store_half(lanes, V::load(k + i));
      for (int j = 0; j < 8; j++) keys[(i + j) * kPositions + slot] = lanes[j];
      V::store_half(values + i, V::load(v + i));
    }
    return;
  }
  std::int32_t sum;
  float d_sum;
  auto* keys = reinterpret_cast<std::int8_t*>(k_block);
  auto* key_scales = reinterpret_cast<float*>(k_block + kPositions * d_head);
  auto* values = reinterpret_cast<std::int8_t*>(v_block) + slot * d_head;
  auto* value_scales = reinterpret_cast<float*>(v_block + kPositions * d_head) + slot * (d_head / 32);
  for (int block = 0; block < d_head / 32; block++) {
    std::int8_t lanes[32];
    quantize32<V>(k + 32 * block, 32, lanes, key_scales + block * kPositions + slot, &d_sum, &sum);
    for (int j = 0; j < 32; j++) keys[(32 * block + j) * kPositions + slot] = lanes[j];
    quantize32<V>(v + 32 * block, 32, values + 32 * block, value_scales + block, &d_sum, &sum);
  }
}

}  // namespace fucina
