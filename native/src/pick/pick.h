// Scans over a row of logits (vocab,) f32: what choosing a token needs where the vocabulary is large.
//
// Every function is a pure function of its arguments, the same bits on every processor: sums run over 16 fixed strided
// lanes, comparisons are exact, ties go to the lower id. src/fucina/decoding/reference_scans.py is the same in NumPy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fucina::pick {

inline constexpr std::size_t kLanes = 16;

// Which tokens may be chosen: those whose bit, id % 32 of words[id / 32], is 1; none past the last word.
struct Bitmask {
  const std::uint32_t* words;
  std::size_t n_words;
};

// The lowest id of the greatest logit; -1 if the row holds NaN or +inf.
std::ptrdiff_t argmax(const float* row, std::size_t vocab);

// The k greatest logits above -inf, greatest first, ties to the lower id. False if the row holds NaN or +inf.
bool top_k(const float* row, std::size_t vocab, std::size_t k, std::vector<std::int32_t>& ids,
           std::vector<float>& values);

// What top_k gives of the row behind apply_bitmask, without a copy of it.
bool top_k_allowed(const float* row, std::size_t vocab, Bitmask allowed, std::size_t k, std::vector<std::int32_t>& ids,
                   std::vector<float>& values);

// Sum of e^((logit - best) * inverse_temperature) over the row; `best` is the greatest logit.
double exp_sum(const float* row, std::size_t vocab, float best, double inverse_temperature);

// What exp_sum gives of the row behind apply_bitmask, without a copy of it.
double exp_sum_allowed(const float* row, std::size_t vocab, Bitmask allowed, float best, double inverse_temperature);

// How to narrow and draw. `total` is the sum of the weights of everything that may be chosen, or negative for: of the
// window itself. `complete`: nothing that may be chosen lies outside the window.
struct Narrowing {
  double inverse_temperature, total, top_p, min_p, uniform;
  bool complete;
};

// Index in a window of descending logits of the token drawn, or -1 if the window is too short to tell.
//
// Weights are w[i] = e^((values[i] - values[0]) * inverse_temperature). Kept is the shortest prefix whose weights reach
// top_p * total, cut before the first weight below min_p, never empty. Drawn is the first i whose cumulative weight
// exceeds uniform * (sum of the kept weights).
std::ptrdiff_t draw(const float* values, std::size_t count, const Narrowing& how);

// For every token of the window, once: l = l > 0 ? l / repeat : l * repeat, then l -= occurrences * frequency +
// presence. Ids outside the row are skipped.
void penalize(float* row, std::size_t vocab, std::vector<std::int64_t> window, double repeat, double frequency,
              double presence);

// Put -inf where a token is not allowed.
void apply_bitmask(float* row, std::size_t vocab, Bitmask allowed);

}  // namespace fucina::pick
