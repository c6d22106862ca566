#include "experts/resident.h"

#include <algorithm>
#include <stdexcept>

namespace fucina {

namespace {

ExpertMatrix matrix_of(const PackedWeight& weight) { return {weight.format, weight.d_in, weight.d_out}; }

bool same(const ExpertMatrix& a, const ExpertMatrix& b) {
  return a.format == b.format && a.d_in == b.d_in && a.d_out == b.d_out;
}

MatrixView view_of(const PackedWeight& weight) { return {weight.data(), !weight.reads_raw()}; }

}  // namespace

std::size_t ResidentExperts::add_layer(std::vector<ResidentExpert> experts) {
  if (experts.empty()) throw std::invalid_argument("a layer needs an expert");
  const ExpertShape shape{static_cast<int>(experts.size()), matrix_of(*experts[0].gate), matrix_of(*experts[0].up),
                          matrix_of(*experts[0].down)};
  for (const ResidentExpert& e : experts) {
    const bool alike = same(matrix_of(*e.gate), shape.gate) && same(matrix_of(*e.up), shape.up) &&
                       same(matrix_of(*e.down), shape.down);
    if (!alike) throw std::invalid_argument("the experts of a layer differ in shape");
  }
  layers_.push_back({shape, std::move(experts)});
  return layers_.size() - 1;
}

const ExpertShape& ResidentExperts::shape(std::size_t layer) const { return layers_.at(layer).shape; }

void ResidentExperts::begin(std::size_t, std::span<const std::uint32_t> experts) { wanted_ = experts; }

std::size_t ResidentExperts::take(std::size_t layer, std::span<ExpertView> views, Team::Job&) {
  const std::size_t count = std::min(wanted_.size(), views.size());
  for (std::size_t i = 0; i < count; i++) {
    const ResidentExpert& e = layers_[layer].experts[wanted_[i]];
    views[i] = {wanted_[i], view_of(*e.gate), view_of(*e.up), view_of(*e.down)};
  }
  wanted_ = wanted_.subspan(count);
  return count;
}

}  // namespace fucina
