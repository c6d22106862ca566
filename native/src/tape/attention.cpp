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
  kernels_.store_kv(key, v_->row(r) + kv_head * d, d, kv_.q8, position % 64, block + kv_.k_offset,
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
      .q8 = kv_.q8,
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

void AttentionOp::run(Worker& worker, const Pass& pass) {
  const int kv_heads = shape_.kv_heads, group = shape_.heads / kv_heads;
  const int n_spans = static_cast<int>(pass.spans.size());
  const bool decoding = n_spans == pass.rows();
  if (decoding && n_spans * kv_heads >= worker.count) {
    // One row a span: whoever writes a KV head's new position also attends with it, and nobody waits in between.
    for (int piece = worker.next_piece(); piece < n_spans * kv_heads; piece = worker.next_piece()) {
      const Span& span = pass.spans[static_cast<std::size_t>(piece / kv_heads)];
      store(span, 0, piece % kv_heads);
      for (int begin = 0; begin < group; begin += kQueriesPerTask) {
        attend(worker.index, span, piece % kv_heads, begin, std::min(begin + kQueriesPerTask, group));
      }
    }
    return;
  }
  int done = 0;
  int piece = worker.next_piece();
  for (const Span& span : pass.spans) {
    for (; piece < done + span.rows; piece = worker.next_piece()) {
      for (int h = 0; h < kv_heads; h++) store(span, piece - done, h);
    }
    done += span.rows;
  }
  worker.barrier();
  // Late queries see the most, so the long pieces go first.
  const int few = std::max(1, group * pass.rows() / worker.count);
  const int per_piece = std::min(kQueriesPerTask, few);
  done = 0;
  piece = worker.next_piece();
  for (const Span& span : pass.spans) {
    const int queries = span.rows * group, chunks = (queries + per_piece - 1) / per_piece;
    for (; piece < done + chunks * kv_heads; piece = worker.next_piece()) {
      const int begin = (chunks - 1 - (piece - done) / kv_heads) * per_piece;
      attend(worker.index, span, (piece - done) % kv_heads, begin, std::min(begin + per_piece, queries));
    }
    done += chunks * kv_heads;
  }
}

}  // namespace fucina
