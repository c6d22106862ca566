// Which experts a row uses and how much of each, and which rows an expert has.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"

namespace fucina {

struct RoutingSpec {
  int n_experts, n_used;
  bool renormalize;  // the weights of the chosen are divided by their sum
  float scale;       // and multiplied by this
  float top_p;       // below 1: of the chosen, only the first whose share of the weight of all chosen reaches this
};

// What a row has instead of an expert where one was left out.
constexpr std::uint32_t kLeftOut = ~std::uint32_t{0};

// How many experts rows used, and how many of those chosen were left out. One thread counts, others may look.
struct RoutingCounts {
  std::atomic<std::uint64_t> kept = 0, left_out = 0;
};

// One row's n_used experts, the highest score first, of equal scores the lower index; and their weights, the softmax
// over all scores. `room` has n_experts floats, rounded up to eight. In bounds and distinct whatever the scores are.
// Returns how many are kept; the others are kLeftOut, and no part of the sum that weights are divided by.
int choose_experts(const Kernels& kernels, const RoutingSpec& spec, const float* scores, float* room,
                   std::uint32_t* experts, float* weights);

// The (row, rank) pairs of a pass in the order of their experts: those of an expert lie side by side, in slots.
class Grouping {
 public:
  void reserve(int max_rows, int n_experts, int n_used);
  // `experts` are the choices of all rows, (rows, n_used); those left out have no slot.
  void group(int rows, int n_experts, int n_used, const std::uint32_t* experts);

  // Experts that have rows, ascending.
  std::span<const std::uint32_t> wanted() const { return wanted_; }
  int slots() const { return used_; }
  int first_slot(std::uint32_t expert) const { return first_[expert]; }
  int rows_of(std::uint32_t expert) const { return first_[expert + 1] - first_[expert]; }
  int row_of_slot(int slot) const { return rows_[static_cast<std::size_t>(slot)]; }
  int slot_of(int row, int rank, int n_used) const { return slots_[static_cast<std::size_t>(row) * n_used + rank]; }

 private:
  std::vector<int> first_, next_;  // (n_experts + 1)
  std::vector<int> rows_, slots_;  // (rows * n_used)
  std::vector<std::uint32_t> wanted_;
  int used_ = 0;
};

}  // namespace fucina
