#include "tape/attention.h"

#include <algorithm>

namespace fucina {

namespace {
constexpr int kStretch = 64 * kStretchBlocks;
// Pieces for each thread, so that none waits long for the last: equal ones, and others.
constexpr int kEqualPieces = 2, kUnequalPieces = 8;
// Positions from which sharing them out is worth a second share.
constexpr int kSplitFrom = 1024;
// Queries of a KV head up to which reading K and V takes longer than the arithmetic: they are then read once.
constexpr int kFewQueries = 8;
}  // namespace

AttentionOp::AttentionOp(std::string op_name, const Kernels& kernels, int threads, AttentionShape shape, KvLayout kv,
                         std::optional<NormWeights> q_norm, std::optional<NormWeights> k_norm, std::shared_ptr<Slab> q,
                         std::shared_ptr<Slab> k, std::shared_ptr<Slab> v, std::shared_ptr<Slab> angles,
                         std::shared_ptr<Slab> out)
    : Op(std::move(op_name)),
      kernels_(kernels),
      shape_(shape),
      kv_(kv),
      q_norm_(std::move(q_norm)),
      k_norm_(std::move(k_norm)),
      q_(std::move(q)),
      k_(std::move(k)),
      v_(std::move(v)),
      angles_(std::move(angles)),
      out_(std::move(out)),
      scratch_(sizeof(float) * attend_scratch_floats(shape.d_head) * static_cast<std::size_t>(threads)),
      split_positions_(kv.n_blocks * 64),
      partials_(threads == 1
                    ? 0
                    : sizeof(float) * static_cast<std::size_t>(shape.kv_heads) * partial_floats(kQueriesPerTask) *
                          static_cast<std::size_t>((split_positions_ + kStretch - 1) / kStretch)) {}

// Normalize and rotate what belongs to one KV head of one row, and write the row's position.
void AttentionOp::store(const Span& span, int row, int kv_head) const {
  const int d = shape_.d_head, group = shape_.heads / shape_.kv_heads, r = span.first_row + row;
  const float* angles = angles_->row(r);
  for (int i = 0; i < group; i++) {
    float* head = q_->row(r) + (kv_head * group + i) * d;
    if (q_norm_) kernels_.rms_norm(head, q_norm_->weight.data(), q_norm_->eps, d, head);
    kernels_.rotate(head, angles, shape_.d_rotary, shape_.halves);
  }
  float* key = k_->row(r) + kv_head * d;
  if (k_norm_) kernels_.rms_norm(key, k_norm_->weight.data(), k_norm_->eps, d, key);
  kernels_.rotate(key, angles, shape_.d_rotary, shape_.halves);
  const int position = span.start + row;
  std::uint8_t* block = kv_.pool + static_cast<std::size_t>(span.blocks[position / 64]) * kv_.block_bytes +
                        static_cast<std::size_t>(kv_head) * kv_.head_bytes;
  kernels_.store_kv(key, v_->row(r) + kv_head * d, d, kv_.format, position % 64, block + kv_.k_offset,
                    block + kv_.v_offset);
}

AttendArgs AttentionOp::args(const Span& span, int kv_head, int heads, int begin, int end) const {
  const int d = shape_.d_head, group = shape_.heads / shape_.kv_heads;
  const std::size_t head = static_cast<std::size_t>(kv_head) * kv_.head_bytes;
  return {
      .keys = kv_.pool + kv_.k_offset + head,
      .values = kv_.pool + kv_.v_offset + head,
      .head_bytes = kv_.head_bytes,
      .block_bytes = kv_.block_bytes,
      .blocks = span.blocks,
      .format = kv_.format,
      .d_head = d,
      .group = group,
      .start = span.start,
      .window = shape_.window,
      .scale = shape_.scale,
      .q = q_->row(span.first_row) + kv_head * group * d,
      .q_stride = static_cast<std::size_t>(q_->width),
      .out = out_->row(span.first_row) + kv_head * group * d,
      .out_stride = static_cast<std::size_t>(out_->width),
      .heads = heads,
      .query_begin = begin,
      .query_end = end,
      .afterwards = kv_.pool + kv_.k_offset + head + static_cast<std::size_t>(span.blocks[0]) * kv_.block_bytes,
      .scratch = nullptr,
      .partials = nullptr,
      .partials_stride = 0,
      .stretch_begin = 0,
      .stretch_end = 0,
  };
}

void AttentionOp::attend(int thread, AttendArgs a) const {
  a.scratch = scratch_.as<float>() + static_cast<std::size_t>(thread) * attend_scratch_floats(shape_.d_head);
  kernels_.attend(a);
}

// KV heads, of `queries` queries each, in one task, if there are `parts` tasks of all heads and at least `pieces` are
// wanted. The more heads, the longer the stretches of memory that are read in a row.
int AttentionOp::heads_at_once(int queries, int parts, int pieces) const {
  const int kv_heads = shape_.kv_heads, most = std::clamp(kQueriesPerTask / queries, 1, kv_heads);
  const int heads = std::clamp(kv_heads * parts / pieces, 1, most), shares = (kv_heads + heads - 1) / heads;
  return (kv_heads + shares - 1) / shares;
}

// One row a span: whoever writes a KV head's new position also attends with it, and nobody waits in between.
void AttentionOp::run_single_rows(Team::Job& job, const Pass& pass) {
  const int kv_heads = shape_.kv_heads, group = shape_.heads / kv_heads;
  const int each = job.threads() == 1 ? 1 : pass.rows() == 1 ? kEqualPieces : kUnequalPieces;
  const int heads = heads_at_once(group, pass.rows(), each * job.threads());
  const int shares = (kv_heads + heads - 1) / heads, pieces = pass.rows() * shares;
  job.share(pieces, [&](Turn turn) {
    const Span& span = pass.spans[static_cast<std::size_t>(turn.piece / shares)];
    const int first = turn.piece % shares * heads, end = std::min(first + heads, kv_heads);
    const int next = std::min(turn.piece + 1, pieces - 1);
    for (int h = first; h < end; h++) store(span, 0, h);
    for (int begin = 0; begin < group; begin += kQueriesPerTask) {
      AttendArgs a = args(span, first, end - first, begin, std::min(begin + kQueriesPerTask, group));
      a.afterwards =
          args(pass.spans[static_cast<std::size_t>(next / shares)], next % shares * heads, 1, 0, 1).afterwards;
      attend(turn.thread, a);
    }
  });
}

// One span with few queries for many positions: threads take stretches of them, and the sums are combined afterwards.
void AttentionOp::run_stretches(Team::Job& job, const Span& span) {
  const int kv_heads = shape_.kv_heads, queries = span.rows * shape_.heads / kv_heads;
  const int last = span.start + span.rows, first = shape_.window > 0 ? std::max(span.start + 1 - shape_.window, 0) : 0;
  const int begin = first / kStretch, end = (last + kStretch - 1) / kStretch, parts = end - begin;
  const auto task = [&](int kv_head, int heads, int from, int to) {
    AttendArgs a = args(span, kv_head, heads, 0, queries);
    a.partials = partials_.as<float>() + static_cast<std::size_t>(kv_head) * partial_floats(queries);
    a.partials_stride = static_cast<std::size_t>(kv_heads) * partial_floats(queries);
    a.stretch_begin = from;
    a.stretch_end = to;
    return a;
  };
  const int heads = heads_at_once(queries, parts, kUnequalPieces * job.threads());
  const int shares = (kv_heads + heads - 1) / heads;
  job.share(parts * shares, [&](Turn turn) {
    const int kv_head = turn.piece / parts * heads, from = begin + turn.piece % parts;
    AttendArgs a = task(kv_head, std::min(heads, kv_heads - kv_head), from, from + 1);
    if (from + 1 < end) {
      a.afterwards = a.keys + static_cast<std::size_t>(span.blocks[(from + 1) * kStretchBlocks]) * kv_.block_bytes;
    }
    attend(turn.thread, a);
  });
  job.share(kv_heads, [&](Turn turn) {
    AttendArgs a = task(turn.piece, 1, begin, end);
    a.scratch = scratch_.as<float>() + static_cast<std::size_t>(turn.thread) * attend_scratch_floats(shape_.d_head);
    kernels_.gather(a);
  });
}

void AttentionOp::run(Team::Job& job, const Pass& pass) {
  const int kv_heads = shape_.kv_heads, group = shape_.heads / kv_heads;
  const int n_spans = static_cast<int>(pass.spans.size());
  const Span& only = pass.spans[0];
  const int queries = only.rows * group;
  const bool few = queries <= (kv_heads % job.threads() == 0 ? kFewQueries : kQueriesPerTask);
  const bool has_room = only.start + only.rows <= split_positions_;  // a block may stand twice in a table
  const bool by_stretches = n_spans == 1 && job.threads() > 1 && few && has_room && only.start >= kSplitFrom;
  if (n_spans == pass.rows() && n_spans * kv_heads >= job.threads() && !by_stretches) {
    return run_single_rows(job, pass);
  }
  job.share(pass.rows(), [&](Turn turn) {
    const Span* span = &pass.spans[0];
    while (turn.piece >= span->first_row + span->rows) span++;
    for (int h = 0; h < kv_heads; h++) store(*span, turn.piece - span->first_row, h);
  });
  if (by_stretches) return run_stretches(job, only);
  const int share = std::clamp(group * pass.rows() / job.threads(), 1, kQueriesPerTask);
  const auto piece_of = [&](const Span& span) {
    return span.rows * group <= kFewQueries ? std::max(share, span.rows * group) : share;
  };
  const auto chunks = [&](const Span& span) { return (span.rows * group + piece_of(span) - 1) / piece_of(span); };
  int pieces = 0;
  for (const Span& span : pass.spans) pieces += chunks(span) * kv_heads;
  job.share(pieces, [&](Turn turn) {
    int piece = turn.piece;
    const Span* span = &pass.spans[0];
    for (; piece >= chunks(*span) * kv_heads; span++) piece -= chunks(*span) * kv_heads;
    // Late queries see the most, so the long pieces go first.
    const int queries = piece_of(*span), begin = (chunks(*span) - 1 - piece / kv_heads) * queries;
    attend(turn.thread, args(*span, piece % kv_heads, 1, begin, std::min(begin + queries, span->rows * group)));
  });
}

}  // namespace fucina
