#include "tape/attention.h"

#include <algorithm>

namespace fucina {

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
      scratch_(sizeof(float) * attend_scratch_floats(shape.d_head) * static_cast<std::size_t>(threads)) {}

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

void AttentionOp::attend(int thread, const Span& span, int kv_head, int begin, int end) const {
  const int d = shape_.d_head, group = shape_.heads / shape_.kv_heads;
  const std::size_t head = static_cast<std::size_t>(kv_head) * kv_.head_bytes;
  kernels_.attend({
      .keys = kv_.pool + kv_.k_offset + head,
      .values = kv_.pool + kv_.v_offset + head,
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
      .query_begin = begin,
      .query_end = end,
      .scratch = scratch_.as<float>() + static_cast<std::size_t>(thread) * attend_scratch_floats(d),
  });
}

void AttentionOp::run(Team::Job& job, const Pass& pass) {
  const int kv_heads = shape_.kv_heads, group = shape_.heads / kv_heads;
  const int n_spans = static_cast<int>(pass.spans.size());
  if (n_spans == pass.rows() && n_spans * kv_heads >= job.threads()) {
    // One row a span: whoever writes a KV head's new position also attends with it, and nobody waits in between.
    job.share(n_spans * kv_heads, [&](Turn turn) {
      const Span& span = pass.spans[static_cast<std::size_t>(turn.piece / kv_heads)];
      store(span, 0, turn.piece % kv_heads);
      for (int begin = 0; begin < group; begin += kQueriesPerTask) {
        attend(turn.thread, span, turn.piece % kv_heads, begin, std::min(begin + kQueriesPerTask, group));
      }
    });
    return;
  }
  job.share(pass.rows(), [&](Turn turn) {
    const Span* span = &pass.spans[0];
    while (turn.piece >= span->first_row + span->rows) span++;
    for (int h = 0; h < kv_heads; h++) store(*span, turn.piece - span->first_row, h);
  });
  const int per_piece = std::clamp(group * pass.rows() / job.threads(), 1, kQueriesPerTask);
  const auto chunks = [&](const Span& span) { return (span.rows * group + per_piece - 1) / per_piece; };
  int pieces = 0;
  for (const Span& span : pass.spans) pieces += chunks(span) * kv_heads;
  job.share(pieces, [&](Turn turn) {
    int piece = turn.piece;
    const Span* span = &pass.spans[0];
    for (; piece >= chunks(*span) * kv_heads; span++) piece -= chunks(*span) * kv_heads;
    // Late queries see the most, so the long pieces go first.
    const int begin = (chunks(*span) - 1 - piece / kv_heads) * per_piece;
    attend(turn.thread, *span, piece % kv_heads, begin, std::min(begin + per_piece, span->rows * group));
  });
}

}  // namespace fucina
