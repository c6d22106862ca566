// Where the matrices of routed experts come from: memory (resident.h), or a store that reads them when they are needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/formats.h"
#include "threads/team.h"

namespace fucina {

// One matrix of every expert of a layer: y (d_out) = W (d_out, d_in) x.
struct ExpertMatrix {
  Format format;
  int d_in, d_out;
};

// What all experts of a layer have in common; checked when the layer was bound.
struct ExpertShape {
  int n_experts;
  ExpertMatrix gate, up, down;
};

// The bytes of one matrix: in the tiles of the backend's tier (kernels/pack.h), or in the rows of the file. The rows of
// the file are what a tier without tiles reads, and what any tier can.
struct MatrixView {
  const std::uint8_t* data;
  bool packed;
};

// One expert, borrowed from a source: valid from `take` until it is given back.
struct ExpertView {
  std::uint32_t expert;
  MatrixView gate, up, down;
};

// The experts of all layers. One pass at a time asks, always from the thread that runs the tape, always in this order:
// begin, then take and give_back until every announced expert was taken once, then end. Which experts come first
// changes no bit of the result, and neither does how many come together.
class ExpertSource {
 public:
  virtual ~ExpertSource() = default;

  // Throws std::out_of_range for a layer that the source does not have.
  virtual const ExpertShape& shape(std::size_t layer) const = 0;

  // Announces the experts that the pass needs of this layer, each once, all below n_experts; borrowed until `end`.
  virtual void begin(std::size_t layer, std::span<const std::uint32_t> experts) = 0;

  // Waits until at least one announced expert that was not taken yet is in memory, then fills `views` from its front
  // with those that are, at most views.size() of them. Returns how many: at least 1, or 0 when all were taken. Throws
  // what went wrong (a read that failed); the pass then ends. `job` is the pass's own: its threads may help.
  virtual std::size_t take(std::size_t layer, std::span<ExpertView> views, Team::Job& job) = 0;

  // The last `take`'s experts are computed: their memory may be used for others.
  virtual void give_back(std::size_t layer) = 0;

  // The pass is done with this layer, or failed in it: nothing is borrowed any more. Called once for every begin.
  virtual void end(std::size_t layer) noexcept = 0;

  // Says which experts of a layer a pass is likely to need soon. Between passes' begin and end of any layer; returns at
  // once, and changes no result.
  virtual void hint(std::size_t layer, std::span<const std::uint32_t> experts) { (void)layer, (void)experts; }
};

}  // namespace fucina
