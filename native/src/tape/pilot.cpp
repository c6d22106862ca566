#include "tape/pilot.h"

#include <algorithm>
#include <span>

namespace fucina {

namespace {
// Many rows need most experts anyway, and their layers take long enough to read what is missing.
constexpr int kMostRows = 4;
}  // namespace

PilotOp::PilotOp(std::string op_name, const Kernels& kernels, std::shared_ptr<MixtureRoom> mixtures,
                 std::unique_ptr<Op> router, std::shared_ptr<Slab> scores, std::shared_ptr<ExpertSource> source,
                 std::size_t layer, RoutingSpec routing)
    : Op(std::move(op_name)),
      kernels_(kernels),
      mixtures_(std::move(mixtures)),
      router_(std::move(router)),
      scores_(std::move(scores)),
      source_(std::move(source)),
      layer_(layer),
      routing_(routing),
      room_(static_cast<std::size_t>((routing.n_experts + 7) / 8 * 8)),
      weights_(static_cast<std::size_t>(routing.n_used)),
      chosen_(static_cast<std::size_t>(routing.n_used)) {}

void PilotOp::run(Team::Job& job, const Pass& pass) {
  mixtures_->foresight.forget(layer_);
  if (pass.rows() > kMostRows) return;
  router_->run(job, pass);
  // The first ranks are hardly ever wrong, and enough to keep the disk busy until the layer itself asks.
  const std::size_t sure = (chosen_.size() + 1) / 2;
  for (int row = 0; row < pass.rows(); row++) {
    const int kept =
        choose_experts(kernels_, routing_, scores_->row(row), room_.data(), chosen_.data(), weights_.data());
    const auto likely = std::span(chosen_).first(static_cast<std::size_t>(kept));
    mixtures_->foresight.note(layer_, routing_.n_experts, likely);
    source_->hint(layer_, likely.first(std::min(likely.size(), sure)));
  }
}

}  // namespace fucina
