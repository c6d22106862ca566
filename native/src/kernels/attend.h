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
constexpr int kStretchBlocks = 4;
constexpr float kMinusInfinity = -__builtin_inff();

// One head's K (as (d_head, 64)) or V (as (64, d_head)) of a block to f32.
template <class V>
FUCINA_INLINE void widen(const std::uint8_t* block, int d_head, KvFormat format, bool transposed, float* out) {
  const int n = kPositions * d_head;
  if (format == KvFormat::F32) {
    const auto* floats = reinterpret_cast<const float*>(block);
    for (int i = 0; i < n; i += 8) V::store(out + i, V::load(floats + i));
    return;
  }
  if (format == KvFormat::F16) {
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

template <class V>
FUCINA_INLINE float exp_one(float x) {
  float lanes[8];
  V::store(lanes, exp_lanes<V>(V::set(x)));
  return lanes[0];
}

// Softmax sums of one query, relative to their maximum: of a block, a stretch, or all that was seen so far.
struct Partial {
  float top, total;
  float* sum;  // (d_head)
};

template <class V>
FUCINA_INLINE void combine(const Partial& fresh, int d_head, Partial& into) {
  const float highest = fresh.top > into.top ? fresh.top : into.top;
  const float old_share = exp_one<V>(into.top - highest), new_share = exp_one<V>(fresh.top - highest);
  into.top = highest;
  into.total = fused(into.total, old_share, fresh.total * new_share);
  for (int i = 0; i < d_head; i += 8) {
    const auto scaled = V::mul(V::load(fresh.sum + i), V::set(new_share));
    V::store(into.sum + i, V::fma(V::load(into.sum + i), V::set(old_share), scaled));
  }
}

FUCINA_INLINE void clear(int d_head, Partial& partial) {
  partial.top = kMinusInfinity;
  partial.total = 0.0f;
  for (int i = 0; i < d_head; i++) partial.sum[i] = 0.0f;
}

// The positions that query i sees: [first, last).
struct Visible {
  int first, last;
};
FUCINA_INLINE Visible visible(const AttendArgs& a, int i) {
  const int last = a.start + i / a.group + 1;
  return {a.window > 0 && last > a.window ? last - a.window : 0, last};
}

// One block of K and V as f32, and room for its results.
struct BlockRoom {
  float *keys, *values, *scores, *sum;
};

// Combine what query i sees of a block into its stretch.
template <class V>
FUCINA_INLINE void attend_block(const AttendArgs& a, const BlockRoom& room, int block, int i, Partial& stretch) {
  const Visible seen = visible(a, i);
  const int begin = seen.first > block * kPositions ? seen.first - block * kPositions : 0;
  const int end = seen.last < (block + 1) * kPositions ? seen.last - block * kPositions : kPositions;
  if (begin >= end) return;
  const int d = a.d_head;
  score<V>(a.q + i / a.group * a.q_stride + i % a.group * d, room.keys, d, a.scale, room.scores);
  Partial fresh{0.0f, 0.0f, room.sum};
  fresh.top = soften<V>(room.scores, begin, end, &fresh.total);
  int j = 0;
  for (; j + 64 <= d; j += 64) weigh<V, 8>(room.scores, room.values + j, d, begin, end, room.sum + j);
  for (; j < d; j += 8) weigh<V, 1>(room.scores, room.values + j, d, begin, end, room.sum + j);
  combine<V>(fresh, d, stretch);
}

template <class V>
void attend(const AttendArgs& a) {
  const int n = a.query_end - a.query_begin, d = a.d_head;
  float* next = a.scratch;
  const auto take = [&](int floats) {
    float* taken = next;
    next += floats;
    return taken;
  };
  const BlockRoom room{take(kPositions * d), take(kPositions * d), take(kPositions), take(d)};
  Partial stretches[kQueriesPerTask], results[kQueriesPerTask];
  for (int i = 0; i < n; i++) {
    stretches[i].sum = take(d);
    results[i].sum = take(d);
    clear(d, results[i]);
  }
  const int first_block = visible(a, a.query_begin).first / kPositions;
  const int last_block = (visible(a, a.query_end - 1).last - 1) / kPositions;
  for (int block = first_block; block <= last_block; block++) {
    if (block == first_block || block % kStretchBlocks == 0) {
      for (int i = 0; i < n; i++) clear(d, stretches[i]);
    }
    const std::size_t at = static_cast<std::size_t>(a.blocks[block]) * a.block_bytes;
    widen<V>(a.keys + at, d, a.format, true, room.keys);
    widen<V>(a.values + at, d, a.format, false, room.values);
    for (int i = 0; i < n; i++) attend_block<V>(a, room, block, a.query_begin + i, stretches[i]);
    if (block == last_block || block % kStretchBlocks == kStretchBlocks - 1) {
      for (int i = 0; i < n; i++) {
        if (stretches[i].top != kMinusInfinity) combine<V>(stretches[i], d, results[i]);
      }
    }
  }
  for (int i = 0; i < n; i++) {
    const int row = (a.query_begin + i) / a.group, head = (a.query_begin + i) % a.group;
    float* out = a.out + row * a.out_stride + head * d;
    for (int j = 0; j < d; j += 8) {
      V::store(out + j, V::div(V::load(results[i].sum + j), V::set(results[i].total)));
    }
  }
}

template <class V>
void store_kv(const float* k, const float* v, int d_head, KvFormat format, int slot, std::uint8_t* k_block,
              std::uint8_t* v_block) {
  if (format == KvFormat::F32) {
    auto* keys = reinterpret_cast<float*>(k_block);
    auto* values = reinterpret_cast<float*>(v_block) + slot * d_head;
    for (int i = 0; i < d_head; i++) {
      keys[i * kPositions + slot] = k[i];
      values[i] = v[i];
    }
    return;
  }
  if (format == KvFormat::F16) {
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
    quantize32<V>(k + 32 * block, 32, {lanes, key_scales + block * kPositions + slot, &d_sum, &sum}, 1);
    for (int j = 0; j < 32; j++) keys[(32 * block + j) * kPositions + slot] = lanes[j];
    quantize32<V>(v + 32 * block, 32, {values + 32 * block, value_scales + block, &d_sum, &sum}, 1);
  }
}

}  // namespace fucina
