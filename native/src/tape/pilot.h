// Looking one layer ahead: which experts the next layer is likely to need, so that they are read in time.
#pragma once

#include <memory>
#include <vector>

#include "experts/routing.h"
#include "experts/source.h"
#include "tape/mixture.h"
#include "tape/product.h"

namespace fucina {

// Asks a later layer's router what it would choose for the state as it is now, and hints at that. Changes nothing else.
class PilotOp final : public Op {
 public:
  // `router` gives the later layer's scores (rows, n_experts) from the present state.
  PilotOp(std::string op_name, const Kernels& kernels, std::shared_ptr<MixtureRoom> mixtures,
          std::unique_ptr<Op> router, std::shared_ptr<Slab> scores, std::shared_ptr<ExpertSource> source,
          std::size_t layer, RoutingSpec routing);
  void run(Team::Job& job, const Pass& pass) override;

 private:
  const Kernels& kernels_;
  std::shared_ptr<MixtureRoom> mixtures_;  // which are told what was foreseen
  std::unique_ptr<Op> router_;
  std::shared_ptr<Slab> scores_;
  std::shared_ptr<ExpertSource> source_;
  const std::size_t layer_;
  const RoutingSpec routing_;
  std::vector<float> room_, weights_;
  std::vector<std::uint32_t> chosen_;
};

}  // namespace fucina
