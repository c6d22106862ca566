#include "experts/routing.h"

#include <algorithm>
#include <cmath>

namespace fucina {

namespace {

// Leaves out what comes after the first experts whose share of `total` reaches top_p; how many those are. `total`
// becomes their sum. Shares that are no numbers reach nothing, so that all are kept.
int keep(const RoutingSpec& spec, float& total, std::uint32_t* experts, const float* weights) {
  const float enough = spec.top_p * total;
  float sum = 0.0f;
  int kept = 0;
  while (kept < spec.n_used && !(kept > 0 && sum >= enough)) sum += weights[kept++];
  std::fill(experts + kept, experts + spec.n_used, kLeftOut);
  total = sum;
  return kept;
}

}  // namespace

int choose_experts(const Kernels& kernels, const RoutingSpec& spec, const float* scores, float* room,
                   std::uint32_t* experts, float* weights) {
  int count = 0;
  for (int e = 0; e < spec.n_experts; e++) {
    int at = count;
    while (at > 0 && scores[e] > scores[experts[at - 1]]) at--;
    if (at == spec.n_used) continue;
    count = std::min(count + 1, spec.n_used);
    for (int i = count - 1; i > at; i--) experts[i] = experts[i - 1];
    experts[at] = static_cast<std::uint32_t>(e);
  }
  const int padded = (spec.n_experts + 7) / 8 * 8;
  std::copy(scores, scores + spec.n_experts, room);
  std::fill(room + spec.n_experts, room + padded, -INFINITY);
  kernels.softmax(room, padded);
  float total = 0.0f;
  for (int i = 0; i < spec.n_used; i++) {
    weights[i] = room[experts[i]];
    total += weights[i];
  }
  const int kept = spec.top_p < 1.0f ? keep(spec, total, experts, weights) : spec.n_used;
  for (int i = 0; i < kept; i++) weights[i] = (spec.renormalize ? weights[i] / total : weights[i]) * spec.scale;
  return kept;
}

void Grouping::reserve(int max_rows, int n_experts, int n_used) {
  const auto experts = static_cast<std::size_t>(n_experts);
  const std::size_t slots = static_cast<std::size_t>(max_rows) * static_cast<std::size_t>(n_used);
  if (first_.size() < experts + 1) {
    first_.resize(experts + 1);
    next_.resize(experts + 1);
    wanted_.reserve(experts);
  }
  if (slots_.size() < slots) {
    slots_.resize(slots);
    rows_.resize(slots);
  }
}

void Grouping::group(int rows, int n_experts, int n_used, const std::uint32_t* experts) {
  const int slots = rows * n_used;
  std::fill_n(first_.begin(), n_experts + 1, 0);
  for (int i = 0; i < slots; i++) {
    if (experts[i] != kLeftOut) first_[experts[i] + 1]++;
  }
  wanted_.clear();
  for (int e = 0; e < n_experts; e++) {
    if (first_[static_cast<std::size_t>(e) + 1] > 0) wanted_.push_back(static_cast<std::uint32_t>(e));
    first_[static_cast<std::size_t>(e) + 1] += first_[static_cast<std::size_t>(e)];
    next_[static_cast<std::size_t>(e)] = first_[static_cast<std::size_t>(e)];
  }
  used_ = first_[static_cast<std::size_t>(n_experts)];
  for (int i = 0; i < slots; i++) {
    if (experts[i] == kLeftOut) continue;
    const int slot = next_[experts[i]]++;
    slots_[static_cast<std::size_t>(i)] = slot;
    rows_[static_cast<std::size_t>(slot)] = i / n_used;
  }
}

}  // namespace fucina
