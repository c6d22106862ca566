// Products of one prepared input with several weights: the heavy part of a layer, and of the output head.
#pragma once

#include <optional>

#include "tape/tape.h"

namespace fucina {

// A weight as its tier computes from it: in packed tiles, or, not repacked, in the rows of the file.
class PackedWeight {
 public:
  // Packs where the tier has tiles, unless `repack` is false. `raw` is borrowed: it must outlive the weight where
  // nothing is packed (`reads_raw`). Packed tiles take `room`, which the weight keeps alive.
  PackedWeight(const Kernels& kernels, Format format, const std::uint8_t* raw, int d_in, int d_out, int threads,
               std::shared_ptr<Arena> room, bool repack);

  const Format format;
  const int d_in, d_out;
  const std::uint8_t* data() const { return packed_ ? packed_ : raw_; }
  bool reads_raw() const { return packed_ == nullptr; }
  // Pieces that a product can be divided into: the tiles of the tier, or columns where it has none.
  int tiles() const { return tiles_; }
  std::size_t bytes() const;

 private:
  const std::uint8_t* raw_;
  int tiles_;
  std::shared_ptr<Arena> room_;
  std::uint8_t* packed_ = nullptr;  // in the room
  std::size_t packed_bytes_ = 0;
};

// Pieces that a product with a weight of this format and height can be divided into.
int product_tiles(const Kernels& kernels, Format format, int d_out);
// Bytes of one of them, packed or not.
std::size_t product_tile_bytes(const Kernels& kernels, Format format, int d_in);
// Tiles [begin, end) of a product whose weights are packed, or are rows of the file: those are packed one tile after
// the other into `room` (packed_tile_bytes).
void multiply_tiles(const Kernels& kernels, const LinearArgs& args, bool packed, int begin, int end,
                    std::uint8_t* room);
// How many tiles of that size, of `tiles` in all, a thread takes at a time.
int tiles_at_a_time(std::size_t tile_bytes, int tiles, int threads);

// The forms of a row that an op's weights multiply.
struct RowForms {
  bool floats = false, rows32 = false, rows256 = false;
  void add(Format format);
};

// Rows that lie one after the other, prepared; `x` as they are, `floats` with those of a row block alternating.
struct PreparedRows {
  float* x;
  float* floats;
  Rows32 rows32;
  Rows256 rows256;

  // What a product of float weights with n_rows of them reads.
  const float* product_input(int n_rows) const { return n_rows > 1 ? floats : x; }
};

// Puts x (n values), which is row `row` of `n_rows`, among its block's rows.
void put_row(const Kernels& kernels, RowForms forms, const float* x, int n, int row, int n_rows, PreparedRows to);

// Room for the prepared rows of one op at a time, shared by all ops of a backend.
class Workspace {
 public:
  Workspace(int max_rows, int threads) : max_rows(max_rows), threads(threads), own_(threads), tiles_(threads) {}
  void reserve(int d_in);
  void reserve_tile(std::size_t bytes);

  struct Rows {
    Buffer x, floats, q32, d32, d_sum32, sum32, q256, d256, sum16_256, sum32_256;

    Rows32 rows32() const {
      return {q32.as<std::int8_t>(), d32.as<float>(), d_sum32.as<float>(), sum32.as<std::int32_t>()};
    }
    Rows256 rows256() const {
      return {q256.as<std::int8_t>(), d256.as<float>(), sum16_256.as<std::int16_t>(), sum32_256.as<std::int16_t>()};
    }
    // From row `first` of rows of n values.
    PreparedRows from(int first, int n) const;
  };
  const Rows& shared() const { return shared_; }
  // One row for each thread alone: a single row is prepared by everybody, which is cheaper than waiting for one.
  const Rows& own(int thread) const { return own_[static_cast<std::size_t>(thread)]; }
  // Where a thread packs a tile of a weight that is not repacked.
  std::uint8_t* tile(int thread) const { return tiles_[static_cast<std::size_t>(thread)].data(); }

  const int max_rows, threads;

 private:
  int widest_ = 0;
  Rows shared_;
  std::vector<Rows> own_;
  std::vector<Buffer> tiles_;
};

struct NormWeights {
  std::vector<float> weight;
  float eps;
};

enum class Activation { Silu, Gelu };

struct GateInput {
  std::shared_ptr<Slab> up;
  Activation activation;
};

struct Projection {
  std::shared_ptr<PackedWeight> weight;
  std::shared_ptr<Slab> out;
  std::vector<float> bias;  // empty: none
  bool accumulate;
};

class LinearOp final : public Op {
 public:
  // With `only_logit_rows` (the output head; it has a norm) the product reads row logit_rows[i] of x and writes row i.
  LinearOp(std::string op_name, const Kernels& kernels, std::shared_ptr<Workspace> workspace, std::shared_ptr<Slab> x,
           std::optional<NormWeights> norm, std::optional<GateInput> gate, std::vector<Projection> projections,
           bool only_logit_rows);
  void run(Team::Job& job, const Pass& pass) override;

 private:
  void prepare(const Workspace::Rows& rows, int source_row, int slot, int n_rows) const;
  void multiply(const Workspace::Rows& rows, const float* x, int n_rows, int thread, int begin, int end) const;

  const Kernels& kernels_;
  std::shared_ptr<Workspace> workspace_;
  std::shared_ptr<Slab> x_;
  std::optional<NormWeights> norm_;
  std::optional<GateInput> gate_;
  std::vector<Projection> projections_;
  const bool only_logit_rows_;
  RowForms forms_;
  int total_tiles_ = 0;
};

// x += norm(y)
class AddNormOp final : public Op {
 public:
  AddNormOp(std::string op_name, const Kernels& kernels, std::shared_ptr<Slab> x, std::shared_ptr<Slab> y,
            NormWeights norm);
  void run(Team::Job& job, const Pass& pass) override;

 private:
  const Kernels& kernels_;
  std::shared_ptr<Slab> x_, y_;
  NormWeights norm_;
};

}  // namespace fucina
