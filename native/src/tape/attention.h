// One layer's attention: normalize and rotate, write K and V into the pool, attend.
#pragma once

#include <optional>

#include "tape/product.h"

namespace fucina {

struct AttentionShape {
  int heads, kv_heads, d_head, d_rotary;
  bool halves;  // rope pairs (i, i + d_rotary/2) instead of (2i, 2i+1)
  float scale;
  int window;  // 0: everything before
};

// Where a layer's K and V lie in the pool.
struct KvLayout {
  std::uint8_t* pool;
  std::size_t block_bytes, k_offset, v_offset, head_bytes;
  int n_blocks;
  KvFormat format;
};

class AttentionOp final : public Op {
 public:
  AttentionOp(std::string op_name, const Kernels& kernels, int threads, AttentionShape shape, KvLayout kv,
              std::optional<NormWeights> q_norm, std::optional<NormWeights> k_norm, std::shared_ptr<Slab> q,
              std::shared_ptr<Slab> k, std::shared_ptr<Slab> v, std::shared_ptr<Slab> angles,
              std::shared_ptr<Slab> out);
  void run(Team::Job& job, const Pass& pass) override;

 private:
  void store(const Span& span, int row, int kv_head) const;
  AttendArgs args(const Span& span, int kv_head, int heads, int query_begin, int query_end) const;
  void attend(int thread, AttendArgs a) const;
  void run_single_rows(Team::Job& job, const Pass& pass);
  void run_stretches(Team::Job& job, const Span& span);
  std::size_t partial_floats(int queries) const {
    return static_cast<std::size_t>(queries) * static_cast<std::size_t>(shape_.d_head + 2);
  }
  int heads_at_once(int queries, int parts, int pieces) const;

  const Kernels& kernels_;
  const AttentionShape shape_;
  const KvLayout kv_;
  std::optional<NormWeights> q_norm_, k_norm_;
  std::shared_ptr<Slab> q_, k_, v_, angles_, out_;
  Buffer scratch_;
  int split_positions_;  // for which `partials_` has room: those of the pool
  Buffer partials_;      // committed by the system when first used
};

}  // namespace fucina
