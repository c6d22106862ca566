// All experts in memory, packed like any other weight.
#pragma once

#include <memory>
#include <vector>

#include "experts/source.h"
#include "tape/product.h"

namespace fucina {

// Three matrices of one expert.
struct ResidentExpert {
  std::shared_ptr<PackedWeight> gate, up, down;
};

class ResidentExperts final : public ExpertSource {
 public:
  // Experts 0, 1, ... of the next layer; returns its number. Throws std::invalid_argument unless there is at least one
  // and all have the same shapes.
  std::size_t add_layer(std::vector<ResidentExpert> experts);

  const ExpertShape& shape(std::size_t layer) const override;
  void begin(std::size_t layer, std::span<const std::uint32_t> experts) override;
  std::size_t take(std::size_t layer, std::span<ExpertView> views, Team::Job&) override;
  void give_back(std::size_t) override {}
  void end(std::size_t) noexcept override {}

 private:
  struct Layer {
    ExpertShape shape;
    std::vector<ResidentExpert> experts;
  };
  std::vector<Layer> layers_;
  std::span<const std::uint32_t> wanted_;  // those not taken yet
};

}  // namespace fucina
