#include "experts/routing.h"

#include <algorithm>
#include <cmath>

namespace fucina {

void choose_experts(const Kernels& kernels, const RoutingSpec& spec, const float* scores, float* room,
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
  for (int i = 0; i < spec.n_used; i++) weights[i] = (spec.renormalize ? weights[i] / total : weights[i]) * spec.scale;
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
  for (int i = 0; i < slots; i++) first_[experts[i] + 1]++;
  wanted_.clear();
  for (int e = 0; e < n_experts; e++) {
    if (first_[static_cast<std::size_t>(e) + 1] > 0) wanted_.push_back(static_cast<std::uint32_t>(e));
    first_[static_cast<std::size_t>(e) + 1] += first_[static_cast<std::size_t>(e)];
    next_[static_cast<std::size_t>(e)] = first_[static_cast<std::size_t>(e)];
  }
  for (int i = 0; i < slots; i++) {
    const int slot = next_[experts[i]]++;
    slots_[static_cast<std::size_t>(i)] = slot;
    rows_[static_cast<std::size_t>(slot)] = i / n_used;
  }
}

}  // namespace fucina
