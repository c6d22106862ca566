// A forward pass: a list of bound ops run by the team over the rows of a pass.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/memory.h"
#include "kernels/kernels.h"
#include "threads/team.h"

namespace fucina {

// A buffer of activations, (max_rows, width) f32.
struct Slab {
  Slab(int max_rows, int row_width)
      : width(row_width), memory(sizeof(float) * static_cast<std::size_t>(max_rows) * row_width) {}
  float* row(int r) const { return memory.as<float>() + static_cast<std::size_t>(r) * width; }

  const int width;
  const Buffer memory;
};

// Consecutive rows of one sequence. `blocks` is its block table.
struct Span {
  int first_row, rows, start;
  const std::int32_t* blocks;
};

// All rows of one forward pass. Checked by `check` before any op sees it.
struct Pass {
  std::vector<std::int32_t> tokens, positions;  // (rows)
  std::vector<Span> spans;
  std::vector<std::int32_t> logit_rows;
  std::vector<std::int32_t> tables;  // the spans' block tables, one after the other

  int rows() const { return static_cast<int>(tokens.size()); }
};

class Op {
 public:
  explicit Op(std::string op_name) : name(std::move(op_name)) {}
  virtual ~Op() = default;
  // Computes all rows of the pass, sharing the work out to the job's threads. Allocates nothing.
  virtual void run(Team::Job& job, const Pass& pass) = 0;

  const std::string name;
};

struct Tape {
  std::vector<std::shared_ptr<Op>> ops;
};

// Runs the ops in order.
void run_tape(const Tape& tape, const Pass& pass, int threads);

// Runs the ops in order; the nanoseconds that each took.
std::vector<std::int64_t> profile_tape(const Tape& tape, const Pass& pass, int threads);

}  // namespace fucina
