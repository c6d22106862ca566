// Rows in: token embeddings and rotary angles.
#pragma once

#include "tape/tape.h"

namespace fucina {

class EmbedOp final : public Op {
 public:
  // `table` is (vocab, d_model) in raw GGUF rows, borrowed.
  EmbedOp(std::string op_name, Format format, const std::uint8_t* table, float scale, std::shared_ptr<Slab> out);
  void run(Team::Job& job, const Pass& pass) override;

 private:
  Format format_;
  const std::uint8_t* table_;
  std::size_t row_bytes_;
  float scale_;
  std::shared_ptr<Slab> out_;
};

class AnglesOp final : public Op {
 public:
  // out[r] = [cos(p f) * magnitude ..., sin(p f) * magnitude ...] for the frequencies f.
  AnglesOp(std::string op_name, std::vector<double> frequencies, double magnitude, std::shared_ptr<Slab> out);
  void run(Team::Job& job, const Pass& pass) override;

 private:
  std::vector<double> frequencies_;
  double magnitude_;
  std::shared_ptr<Slab> out_;
};

// Sine and cosine of x, 0 <= x < 2^20 quarter turns: our own, so that every machine gets the same bits.
void sine_cosine(double x, double* sine, double* cosine);

}  // namespace fucina
