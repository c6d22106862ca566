// A layer's routed experts: every row through those that it scores highest, each expert's matrices read once a pass.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "experts/routing.h"
#include "experts/source.h"
#include "tape/foresight.h"
#include "tape/product.h"

namespace fucina {

// Room for one mixture at a time, shared by all mixtures of a backend. A slot is one row at one expert.
struct MixtureRoom {
  MixtureRoom(int n_max_rows, int n_threads) : max_rows(n_max_rows), threads(n_threads) {}
  // Grows to what a mixture of this kind needs. Not while one runs.
  void reserve(const Kernels& kernels, const RoutingSpec& routing, const ExpertShape& shape);

  const int max_rows, threads;
  std::unique_ptr<Workspace> inputs, inners;  // prepared rows, one a slot: of norm(x), of activation(gate) * up
  Buffer normed;                              // (rows, d_model)
  Buffer scores;                              // (rows, n_experts rounded up to eight)
  Buffer gate, up;                            // (slots, d_expert)
  Buffer down;                                // (slots, d_model)
  std::vector<std::uint32_t> chosen;          // (rows, n_used)
  std::vector<float> weights;                 // (rows, n_used)
  Grouping grouping;
  RoutingCounts counts;
  Foresight foresight;
  std::vector<ExpertView> views;
  std::vector<int> before;  // slots of the views before each; one more for all

 private:
  int slots_ = 0, d_model_ = 0, d_expert_ = 0, n_experts_ = 0;
};

// What is added besides the experts: y, weighed by the sigmoid of its switch, one value a row.
struct SwitchedBranch {
  std::shared_ptr<Slab> y, switch_;
};

// x = fma(weight of rank r, the expert of rank r of norm(x), x) for r = 0, 1, ... n_used - 1, and then, where there is
// a shared branch, x = fma(sigmoid(switch), y, x).
class MixtureOp final : public Op {
 public:
  // `scores` are the router's, (rows, n_experts).
  MixtureOp(std::string op_name, const Kernels& kernels, std::shared_ptr<MixtureRoom> room, std::shared_ptr<Slab> x,
            NormWeights norm, std::shared_ptr<Slab> scores, std::shared_ptr<ExpertSource> source, std::size_t layer,
            RoutingSpec routing, Activation activation, std::optional<SwitchedBranch> shared);
  void run(Team::Job& job, const Pass& pass) override;

 private:
  // A matrix of one expert times the rows that it has.
  struct Product {
    ExpertMatrix matrix;
    MatrixView weights;
    PreparedRows rows;
    int n_rows;
    float* out;
  };
  void route(int row) const;
  void compute(Team::Job& job, std::span<const ExpertView> views, bool one_row) const;
  void prepare_input(const ExpertView& view, int index) const;
  void prepare_inner(const ExpertView& view, int index) const;
  Product first_product(const ExpertView& view, bool of_gate, bool one_row) const;
  Product down_product(const ExpertView& view) const;
  void multiply(const Product& product, int begin, int end, int thread) const;
  void combine(int row) const;

  const Kernels& kernels_;
  std::shared_ptr<MixtureRoom> room_;
  std::shared_ptr<Slab> x_;
  NormWeights norm_;
  std::shared_ptr<Slab> scores_;
  std::shared_ptr<ExpertSource> source_;
  const std::size_t layer_;
  const RoutingSpec routing_;
  const Activation activation_;
  const std::optional<SwitchedBranch> shared_;
  const ExpertShape shape_;
  RowForms input_forms_, inner_forms_;
  const int gate_tiles_, up_tiles_, down_tiles_;
};

}  // namespace fucina
