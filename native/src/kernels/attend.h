// Softmax attention over the blocks of the KV pool.
//
// Arithmetic, per query and block of 64 positions: scores are one fma chain over d_head ascending, times `scale`;
// m = their maximum over visible positions, p = exp(score - m), l = sum of p (sixteen strided lanes), o = one fma chain
// of p * v over positions ascending. Blocks combine in ascending order inside stretches of 256 positions, and those in
// ascending order: M' = max(M, m), a = exp(M - M'), b = exp(m - M'), L = fma(L, a, l * b), O = fma(O, a, o * b). The
// result is O / L. K is stored transposed, so that score lanes run over positions.
//
// Several queries that see the same positions are computed together, reading K and V once. Several heads are computed
// block by block, first K of all, then V of all: so they lie in memory, which reads a quarter of a megabyte in a row
// nearly twice as fast as sixteen kilobytes here and there.
#pragma once

#include "base/unroll.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

namespace fucina {

constexpr int kPositions = 64;
constexpr float kMinusInfinity = -__builtin_inff();
// Queries computed together, and vectors of positions (or of d_head) that then have their sums in registers.
constexpr int kQueriesAtOnce = 4;
constexpr int vectors_for(int queries) { return queries == 1 ? 8 : queries <= 3 ? 4 : 2; }
// From so many queries on, a task converts a block to f32 once instead of at every use.
constexpr int kWidenFrom = 9;

// One head's K or V of a block as the cache holds it: row i is d_head i of K (64 positions) or position i of V. `load`
// gives values 8j .. 8j+7 of a row.
struct Halves {
  const std::uint8_t* block;
  int width;
  static constexpr int kVectorBytes = 16;
  template <class V>
  FUCINA_INLINE typename V::F load(Halves h, int i, int j) {
    return V::load_half(reinterpret_cast<const std::uint16_t*>(h.block) + static_cast<std::size_t>(i) * h.width +
                        8 * j);
  }
};
struct Floats {
  const std::uint8_t* block;
  int width;
  static constexpr int kVectorBytes = 32;
  template <class V>
  FUCINA_INLINE typename V::F load(Floats f, int i, int j) {
    return V::load(reinterpret_cast<const float*>(f.block) + static_cast<std::size_t>(i) * f.width + 8 * j);
  }
};
struct KeyBytes {
  const std::uint8_t* block;
  const float* scales;  // (d_head / 32, 64)
  static constexpr int kVectorBytes = 8;
  template <class V>
  FUCINA_INLINE typename V::F load(KeyBytes k, int i, int j) {
    const auto* q = reinterpret_cast<const std::int8_t*>(k.block) + i * kPositions + 8 * j;
    return V::mul(V::load_bytes(q), V::load(k.scales + i / 32 * kPositions + 8 * j));
  }
};
struct ValueBytes {
  const std::uint8_t* block;
  const float* scales;  // (64, d_head / 32)
  int width;
  static constexpr int kVectorBytes = 8;
  template <class V>
  FUCINA_INLINE typename V::F load(ValueBytes v, int i, int j) {
    const auto* q = reinterpret_cast<const std::int8_t*>(v.block) + static_cast<std::size_t>(i) * v.width + 8 * j;
    return V::mul(V::load_bytes(q), V::set(v.scales[i * (v.width / 32) + j / 4]));
  }
};

// Calls use(keys), use(values) for one head's part of a block.
template <class Use>
FUCINA_INLINE void with_keys(const std::uint8_t* keys, int d_head, KvFormat format, Use use) {
  if (format == KvFormat::F32) return use(Floats{keys, kPositions});
  if (format == KvFormat::F16) return use(Halves{keys, kPositions});
  use(KeyBytes{keys, reinterpret_cast<const float*>(keys + kPositions * d_head)});
}
template <class Use>
FUCINA_INLINE void with_values(const std::uint8_t* values, int d_head, KvFormat format, Use use) {
  if (format == KvFormat::F32) return use(Floats{values, d_head});
  if (format == KvFormat::F16) return use(Halves{values, d_head});
  use(ValueBytes{values, reinterpret_cast<const float*>(values + kPositions * d_head), d_head});
}

template <class V, class Rows>
FUCINA_INLINE void widen(Rows rows, int n_rows, int width, float* out) {
  for (int i = 0; i < n_rows; i++) {
    for (int j = 0; j < width / 8; j++) V::store(out + i * width + 8 * j, Rows::template load<V>(rows, i, j));
  }
}

// Fetches of the next head's K or V as much as is read of this one's in row `row` of a pass over `vectors` vectors of
// all `rows` rows from `first` on. Passes read only parts of the rows; what is fetched are ascending lines, which is
// what memory and the processor's own fetching are made for, evenly spread over the work.
template <class V, class Rows, int vectors>
FUCINA_INLINE void fetch_alike(const std::uint8_t* next, int rows, int row, int first) {
  constexpr int bytes = Rows::kVectorBytes;
  V::fetch(next + first * rows * bytes + row * vectors * bytes, vectors * bytes);
}

// scores[g * 64 + 8j ..] = q_g . K, scaled, for `vectors` vectors of positions from `first` on.
template <class V, int G, int vectors, class Keys>
FUCINA_INLINE void score(const float* const* q, Keys keys, int first, int d_head, float scale, const std::uint8_t* next,
                         float* scores) {
  typename V::F acc[G][vectors];
  unroll<G>(FUCINA_EACH(g) { unroll<vectors>(FUCINA_EACH(j) { acc[g][j] = V::zero(); }); });
  for (int d = 0; d < d_head; d++) {
    fetch_alike<V, Keys, vectors>(next, d_head, d, first);
    typename V::F x[G];
    unroll<G>(FUCINA_EACH(g) { x[g] = V::set(q[g][d]); });
    unroll<vectors>(FUCINA_EACH(j) {
      const auto k = Keys::template load<V>(keys, d, first + j);
      unroll<G>(FUCINA_EACH(g) { acc[g][j] = V::fma(x[g], k, acc[g][j]); });
    });
  }
  unroll<G>(FUCINA_EACH(g) {
    unroll<vectors>(
        FUCINA_EACH(j) { V::store(scores + g * kPositions + 8 * (first + j), V::mul(acc[g][j], V::set(scale))); });
  });
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

// Softmax sums of one query, relative to their maximum: of a block, a stretch, or all that was seen so far.
struct Partial {
  float top, total;
  float* sum;  // (d_head)
};

// What the sums so far, and fresh ones, are multiplied by when they are combined.
struct Shares {
  float old, fresh;
};

// Combines the tops and totals of G queries; the sums are left to the caller, by these shares.
template <class V, int G>
FUCINA_INLINE void combine_totals(const float* tops, const float* totals, Partial* into, Shares* shares) {
  float lanes[8] = {};
  for (int g = 0; g < G; g++) {
    const float highest = tops[g] > into[g].top ? tops[g] : into[g].top;
    lanes[g] = into[g].top - highest;
    lanes[4 + g] = tops[g] - highest;
    into[g].top = highest;
  }
  V::store(lanes, exp_lanes<V>(V::load(lanes)));
  for (int g = 0; g < G; g++) {
    shares[g] = {lanes[g], lanes[4 + g]};
    into[g].total = fused(into[g].total, lanes[g], totals[g] * lanes[4 + g]);
  }
}

template <class V>
FUCINA_INLINE void combine_sums(typename V::F fresh, Shares shares, float* into) {
  V::store(into, V::fma(V::load(into), V::set(shares.old), V::mul(fresh, V::set(shares.fresh))));
}

template <class V>
FUCINA_INLINE void combine(const Partial& fresh, int d_head, Partial& into) {
  Shares shares;
  combine_totals<V, 1>(&fresh.top, &fresh.total, &into, &shares);
  for (int i = 0; i < d_head; i += 8) combine_sums<V>(V::load(fresh.sum + i), shares, into.sum + i);
}

// Combines into stretches[g].sum[8j ..] the sums over positions [begin, end) of p_g * v, for `vectors` vectors of
// d_head from `first` on.
template <class V, int G, int vectors, class Values>
FUCINA_INLINE void weigh(const float* p, Values values, int first, int begin, int end, const std::uint8_t* next,
                         const Shares* shares, Partial* stretches) {
  typename V::F acc[G][vectors];
  unroll<G>(FUCINA_EACH(g) { unroll<vectors>(FUCINA_EACH(j) { acc[g][j] = V::zero(); }); });
  for (int i = begin; i < end; i++) {
    fetch_alike<V, Values, vectors>(next, kPositions, i, first);
    typename V::F x[G];
    unroll<G>(FUCINA_EACH(g) { x[g] = V::set(p[g * kPositions + i]); });
    unroll<vectors>(FUCINA_EACH(j) {
      const auto v = Values::template load<V>(values, i, first + j);
      unroll<G>(FUCINA_EACH(g) { acc[g][j] = V::fma(x[g], v, acc[g][j]); });
    });
  }
  unroll<G>(FUCINA_EACH(g) {
    unroll<vectors>(FUCINA_EACH(j) { combine_sums<V>(acc[g][j], shares[g], stretches[g].sum + 8 * (first + j)); });
  });
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

// What a query sees of a block: [begin, end), empty where begin >= end.
struct Seen {
  int begin, end;
  friend bool operator==(Seen, Seen) = default;
};
FUCINA_INLINE Seen seen(const AttendArgs& a, int block, int query) {
  const Visible all = visible(a, query);
  const int begin = all.first - block * kPositions, end = all.last - block * kPositions;
  return {begin > 0 ? begin : 0, end < kPositions ? end : kPositions};
}

// One thread's room: what is known of the queries of all heads in one block.
struct Room {
  float* wide;    // K or V of one head in f32
  float* scores;  // (queries, 64): scores, then weights
  Shares shares[kQueriesPerTask];
};

// G queries from `query` on see the same part of a block: their weights and shares, to place `slot` of the room.
template <class V, int G, class Keys>
[[gnu::noinline]] void score_group(const AttendArgs& a, const float* first_q, Keys keys, const std::uint8_t* next,
                                   Seen part, int query, int slot, Room& room, Partial* stretches) {
  constexpr int vectors = vectors_for(G);
  const float* q[G];
  unroll<G>(FUCINA_EACH(g) {
    const int i = query + g;
    q[g] = first_q + i / a.group * a.q_stride + i % a.group * a.d_head;
  });
  float* scores = room.scores + slot * kPositions;
  // Scores past the last visible position are replaced below.
  for (int j = 0; 8 * j < part.end; j += vectors) score<V, G, vectors>(q, keys, j, a.d_head, a.scale, next, scores);
  float tops[G], totals[G];
  unroll<G>(FUCINA_EACH(g) { tops[g] = soften<V>(scores + g * kPositions, part.begin, part.end, &totals[g]); });
  combine_totals<V, G>(tops, totals, stretches + slot, room.shares + slot);
}

// Combines the values by those weights into the queries' stretches.
template <class V, int G, class Values>
[[gnu::noinline]] void weigh_group(int d_head, Values values, const std::uint8_t* next, Seen part, int slot,
                                   const Room& room, Partial* stretches) {
  constexpr int vectors = vectors_for(G);
  const auto pass = [&]<int n>(int first) __attribute__((always_inline)) {
    weigh<V, G, n>(room.scores + slot * kPositions, values, first, part.begin, part.end, next, room.shares + slot,
                   stretches + slot);
  };
  int j = 0;
  for (; j + vectors <= d_head / 8; j += vectors) pass.template operator()<vectors>(j);
  for (; j < d_head / 8; j++) pass.template operator()<1>(j);
}

// Calls use.operator()<G>(part, query) for queries that see the same part of a block, together.
template <class Use>
FUCINA_INLINE void for_groups(const AttendArgs& a, int block, Use use) {
  for (int i = a.query_begin; i < a.query_end;) {
    const Seen part = seen(a, block, i);
    int n = 1;
    while (n < kQueriesAtOnce && i + n < a.query_end && seen(a, block, i + n) == part) n++;
    if (part.begin < part.end) with_count<kQueriesAtOnce>(n, FUCINA_EACH(G) { use.template operator()<G>(part, i); });
    i += n;
  }
}

// All heads of one block: K of all, then V of all, as they lie in memory.
template <class V>
FUCINA_INLINE void attend_block(const AttendArgs& a, int block, const std::uint8_t* afterwards, Room& room,
                                Partial* stretches) {
  const std::size_t here = static_cast<std::size_t>(a.blocks[block]) * a.block_bytes;
  const int n = a.query_end - a.query_begin, d = a.d_head;
  const auto* wide = reinterpret_cast<const std::uint8_t*>(room.wide);
  for (int h = 0; h < a.heads; h++) {
    const std::uint8_t* at = a.keys + here + h * a.head_bytes;
    const std::uint8_t* next = h + 1 < a.heads ? at + a.head_bytes : a.values + here;
    with_keys(at, d, a.format, [&](auto keys) {
      const auto all = [&](auto k, const std::uint8_t* fetched) {
        for_groups(a, block, [&]<int G>(Seen part, int i) __attribute__((always_inline)) {
          score_group<V, G>(a, a.q + h * a.group * d, k, fetched, part, i, h * n + i - a.query_begin, room, stretches);
        });
      };
      if (n < kWidenFrom) return all(keys, next);
      widen<V>(keys, d, kPositions, room.wide);
      all(Floats{wide, kPositions}, wide);
    });
  }
  for (int h = 0; h < a.heads; h++) {
    const std::uint8_t* at = a.values + here + h * a.head_bytes;
    const std::uint8_t* next = h + 1 < a.heads ? at + a.head_bytes : afterwards;
    with_values(at, d, a.format, [&](auto values) {
      const auto all = [&](auto v, const std::uint8_t* fetched) {
        for_groups(a, block, [&]<int G>(Seen part, int i) __attribute__((always_inline)) {
          weigh_group<V, G>(d, v, fetched, part, h * n + i - a.query_begin, room, stretches);
        });
      };
      if (n < kWidenFrom) return all(values, next);
      widen<V>(values, kPositions, d, room.wide);
      all(Floats{wide, d}, wide);
    });
  }
}

// Calls use(head, query, slot) for all queries of all heads of the task.
template <class Use>
FUCINA_INLINE void for_queries(const AttendArgs& a, Use use) {
  int slot = 0;
  for (int h = 0; h < a.heads; h++) {
    for (int i = a.query_begin; i < a.query_end; i++) use(h, i, slot++);
  }
}

template <class V>
FUCINA_INLINE void write_result(const AttendArgs& a, int head, int query, const Partial& result) {
  float* out = a.out + query / a.group * a.out_stride + (head * a.group + query % a.group) * a.d_head;
  for (int j = 0; j < a.d_head; j += 8) V::store(out + j, V::div(V::load(result.sum + j), V::set(result.total)));
}

// A stretch's sums of the query at `slot`.
FUCINA_INLINE float* partial_at(const AttendArgs& a, int stretch, int slot) {
  return a.partials + static_cast<std::size_t>(stretch) * a.partials_stride +
         static_cast<std::size_t>(slot) * static_cast<std::size_t>(a.d_head + 2);
}

template <class V>
void attend(const AttendArgs& a) {
  const int n = a.heads * (a.query_end - a.query_begin), d = a.d_head;
  float* next_room = a.scratch;
  const auto take = [&](int floats) {
    float* taken = next_room;
    next_room += floats;
    return taken;
  };
  Room room;
  room.wide = take(kPositions * d);
  room.scores = take(kQueriesPerTask * kPositions);
  Partial stretches[kQueriesPerTask], results[kQueriesPerTask];
  for (int i = 0; i < n; i++) {
    stretches[i].sum = take(d);
    results[i].sum = take(d);
    clear(d, results[i]);
  }
  const int first_block = visible(a, a.query_begin).first / kPositions;
  const int last_block = (visible(a, a.query_end - 1).last - 1) / kPositions;
  const int begin = a.partials ? a.stretch_begin : first_block / kStretchBlocks;
  const int end = a.partials ? a.stretch_end : last_block / kStretchBlocks + 1;
  for (int stretch = begin; stretch < end; stretch++) {
    for (int i = 0; i < n; i++) clear(d, stretches[i]);
    for (int block = stretch * kStretchBlocks; block < (stretch + 1) * kStretchBlocks; block++) {
      if (block < first_block || block > last_block) continue;
      const bool last = block == last_block || block + 1 == end * kStretchBlocks;
      attend_block<V>(a, block,
                      last ? a.afterwards : a.keys + static_cast<std::size_t>(a.blocks[block + 1]) * a.block_bytes,
                      room, stretches);
    }
    for (int i = 0; i < n; i++) {
      if (a.partials) {
        float* out = partial_at(a, stretch, i);
        out[0] = stretches[i].top;
        out[1] = stretches[i].total;
        std::memcpy(out + 2, stretches[i].sum, sizeof(float) * static_cast<std::size_t>(d));
      } else if (stretches[i].top != kMinusInfinity) {
        combine<V>(stretches[i], d, results[i]);
      }
    }
  }
  if (a.partials) return;
  for_queries(a, [&](int head, int query, int slot) { write_result<V>(a, head, query, results[slot]); });
}

template <class V>
void gather(const AttendArgs& a) {
  Partial result{0.0f, 0.0f, a.scratch};
  for_queries(a, [&](int head, int query, int slot) {
    clear(a.d_head, result);
    for (int stretch = a.stretch_begin; stretch < a.stretch_end; stretch++) {
      float* partial = partial_at(a, stretch, slot);
      if (partial[0] != kMinusInfinity) combine<V>({partial[0], partial[1], partial + 2}, a.d_head, result);
    }
    write_result<V>(a, head, query, result);
  });
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
