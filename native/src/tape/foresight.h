// How many of the experts that a layer needed were foreseen.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace fucina {

// What is foreseen of each layer is kept until that layer runs. One thread notes and judges, others may look at counts.
class Foresight {
 public:
  // Nothing is foreseen of a layer, and nothing will be judged.
  void forget(std::size_t layer) {
    if (layer < layers_.size()) layers_[layer].clear();
  }

  void note(std::size_t layer, int n_experts, std::span<const std::uint32_t> experts) {
    if (layer >= layers_.size()) layers_.resize(layer + 1);
    std::vector<bool>& foreseen = layers_[layer];
    foreseen.resize(static_cast<std::size_t>(n_experts));
    for (const std::uint32_t expert : experts) foreseen[expert] = true;
  }

  // The layer needs these now. Counts them, if anything was foreseen, and forgets it.
  void judge(std::size_t layer, std::span<const std::uint32_t> experts) {
    if (layer >= layers_.size() || layers_[layer].empty()) return;
    const auto& foreseen = layers_[layer];
    needed += experts.size();
    right += static_cast<std::uint64_t>(std::ranges::count_if(experts, [&](auto expert) { return foreseen[expert]; }));
    forget(layer);
  }

  std::atomic<std::uint64_t> needed = 0, right = 0;

 private:
  std::vector<std::vector<bool>> layers_;
};

}  // namespace fucina
