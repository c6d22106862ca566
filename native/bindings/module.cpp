// The index of everything Python can reach in fucina._native.
#include "bindings.h"

NB_MODULE(_native, m) {
  m.attr("ABI") = 1;
  fucina::bindings::bind_cpu(m);      // instruction tiers, the memory roof
  fucina::bindings::bind_ops(m);      // slabs, bound ops, tapes
  fucina::bindings::bind_experts(m);  // experts that stay on disk
  fucina::bindings::bind_text(m);     // the SentencePiece encoder
  fucina::bindings::bind_pick(m);     // scans over a row of logits
  fucina::bindings::bind_draft(m);    // the suffix automaton
}
