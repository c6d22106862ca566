#include "tape/product.h"

#include <algorithm>

#include "kernels/pack.h"

namespace fucina {

namespace {
// Tiles taken at a time: small enough for the second-level cache and for fair shares, large enough to be worth
// fetching.
constexpr std::size_t kPieceBytes = 16 * 1024;
constexpr int kPiecesPerThread = 8;

// The product with tiles [begin, end) of raw rows: each is packed into `room` and multiplied while the first-level
// cache has it, then the next.
void multiply_raw(const Kernels& kernels, const LinearArgs& args, int begin, int end, std::uint8_t* room) {
  const int columns = packed_tile_columns(args.format, kernels.columns);
  for (int tile = begin; tile < end; tile++) {
    pack_tiles(args.format, args.weights, args.d_in, args.d_out, kernels.columns, kernels.eights, tile, tile + 1, room);
    LinearArgs part = args;  // of which this tile is the first
    part.weights = room;
    part.d_out -= tile * columns;
    part.out += tile * columns;
    if (part.bias) part.bias += tile * columns;
    kernels.linear(part, 0, 1);
  }
}
}  // namespace

int product_tiles(const Kernels& kernels, Format format, int d_out) {
  const int columns = kernels.columns == 0 ? 1 : packed_tile_columns(format, kernels.columns);
  return (d_out + columns - 1) / columns;
}

std::size_t product_tile_bytes(const Kernels& kernels, Format format, int d_in) {
  if (kernels.columns > 0) return packed_tile_bytes(format, d_in, kernels.columns);
  const FormatInfo info = format_info(format);
  return static_cast<std::size_t>(d_in / info.block_weights) * info.block_bytes;
}

void multiply_tiles(const Kernels& kernels, const LinearArgs& args, bool packed, int begin, int end,
                    std::uint8_t* room) {
  if (packed || kernels.columns == 0) {
    kernels.linear(args, begin, end);
  } else {
    multiply_raw(kernels, args, begin, end, room);
  }
}

int tiles_at_a_time(std::size_t tile_bytes, int tiles, int threads) {
  const int by_size = static_cast<int>(std::max<std::size_t>(kPieceBytes / std::max<std::size_t>(tile_bytes, 1), 1));
  const int by_share = std::max(tiles / (kPiecesPerThread * threads), 1);
  return std::max(std::min(by_size, by_share), tiles / Team::kMostPieces + 1);
}

void RowForms::add(Format format) {
  const ActivationKind kind = format_info(format).activation;
  floats |= kind == ActivationKind::Float;
  rows32 |= kind == ActivationKind::Block32;
  rows256 |= kind == ActivationKind::Block256;
}

void put_row(const Kernels& kernels, RowForms forms, const float* x, int n, int row, int n_rows, PreparedRows to) {
  const RowBlock block = row_block(n_rows, kernels.rows, block_of_row(n_rows, kernels.rows, row));
  const int in_block = row - block.first;
  if (forms.floats && n_rows > 1) {
    float* spread = to.floats + static_cast<std::size_t>(block.first) * n + in_block;
    for (int k = 0; k < n; k++) spread[k * block.rows] = x[k];
  }
  if (forms.rows32) kernels.quantize32(x, n, at_row(to.rows32, n, block, in_block), block.rows);
  if (forms.rows256) kernels.quantize256(x, n, at_row(to.rows256, n, block, in_block), block.rows);
}

PackedWeight::PackedWeight(const Kernels& kernels, Format weight_format, const std::uint8_t* raw, int n_in, int n_out,
                           int threads, std::shared_ptr<Arena> room, bool repack)
    : format(weight_format), d_in(n_in), d_out(n_out), raw_(raw), room_(std::move(room)) {
  tiles_ = product_tiles(kernels, format, d_out);
  if (!repack || kernels.columns == 0) return;
  const std::size_t tile_bytes = packed_tile_bytes(format, d_in, kernels.columns);
  packed_bytes_ = tile_bytes * static_cast<std::size_t>(tiles_);
  packed_ = room_->take(packed_bytes_);
  const int piece = std::max(16, tiles_ / 1024);
  Team::Job(threads).share((tiles_ + piece - 1) / piece, [&](Turn turn) {
    const int first = turn.piece * piece, last = std::min(first + piece, tiles_);
    pack_tiles(format, raw, d_in, d_out, kernels.columns, kernels.eights, first, last,
               packed_ + static_cast<std::size_t>(first) * tile_bytes);
  });
}

std::size_t PackedWeight::bytes() const {
  const FormatInfo info = format_info(format);
  if (packed_) return packed_bytes_;
  return static_cast<std::size_t>(d_in / info.block_weights) * info.block_bytes * static_cast<std::size_t>(d_out);
}

PreparedRows Workspace::Rows::from(int first, int n) const {
  const std::size_t at = static_cast<std::size_t>(first) * n;
  const RowBlock alone{first, 1};
  return {x.as<float>() + at, floats.as<float>() + at, at_row(rows32(), n, alone, 0), at_row(rows256(), n, alone, 0)};
}

void Workspace::reserve(int d_in) {
  if (d_in <= widest_) return;
  widest_ = d_in;
  const auto make = [&](std::size_t rows) {
    const std::size_t n = rows * static_cast<std::size_t>((d_in + 255) / 256 * 256);
    return Rows{Buffer(4 * n),      Buffer(4 * n), Buffer(n),           Buffer(n / 32 * 4), Buffer(n / 32 * 4),
                Buffer(n / 32 * 4), Buffer(n),     Buffer(n / 256 * 4), Buffer(n / 16 * 2), Buffer(n / 32 * 2)};
  };
  shared_ = make(static_cast<std::size_t>(max_rows));
  for (Rows& rows : own_) rows = make(1);
}

void Workspace::reserve_tile(std::size_t bytes) {
  for (Buffer& tile : tiles_) {
    if (tile.size() < bytes) tile = Buffer(bytes);
  }
}

LinearOp::LinearOp(std::string op_name, const Kernels& kernels, std::shared_ptr<Workspace> workspace,
                   std::shared_ptr<Slab> x, std::optional<NormWeights> norm, std::optional<GateInput> gate,
                   std::vector<Projection> projections, bool only_logit_rows)
    : Op(std::move(op_name)),
      kernels_(kernels),
      workspace_(std::move(workspace)),
      x_(std::move(x)),
      norm_(std::move(norm)),
      gate_(std::move(gate)),
      projections_(std::move(projections)),
      only_logit_rows_(only_logit_rows) {
  workspace_->reserve(x_->width);
  for (const Projection& p : projections_) {
    forms_.add(p.weight->format);
    total_tiles_ += p.weight->tiles();
    if (p.weight->reads_raw() && kernels.columns > 0) {
      workspace_->reserve_tile(packed_tile_bytes(p.weight->format, p.weight->d_in, kernels.columns));
    }
  }
}

// Norm or gate one row of x, and put it among its block's rows as row `slot` of `n_rows`, quantized where weights are.
void LinearOp::prepare(const Workspace::Rows& rows, int source_row, int slot, int n_rows) const {
  const int n = x_->width;
  const std::size_t at = static_cast<std::size_t>(slot) * n;
  const float* source = x_->row(source_row);
  const float* x = source;
  float* own = rows.x.as<float>() + at;
  if (norm_) {
    kernels_.rms_norm(source, norm_->weight.data(), norm_->eps, n, own);
    x = own;
  } else if (gate_) {
    const auto gate = gate_->activation == Activation::Silu ? kernels_.gate_silu : kernels_.gate_gelu;
    gate(source, gate_->up->row(source_row), n, own);
    x = own;
  }
  put_row(kernels_, forms_, x, n, slot, n_rows, rows.from(0, n));
}

// Tiles [begin, end) of all projections, counted one projection after the other.
void LinearOp::multiply(const Workspace::Rows& rows, const float* x, int n_rows, int thread, int begin, int end) const {
  int base = 0;
  for (const Projection& p : projections_) {
    const int first = std::max(begin - base, 0), last = std::min(end - base, p.weight->tiles());
    base += p.weight->tiles();
    if (first >= last) continue;
    const LinearArgs args{
        .format = p.weight->format,
        .weights = p.weight->data(),
        .d_in = p.weight->d_in,
        .d_out = p.weight->d_out,
        .rows = n_rows,
        .x = x,
        .rows32 = rows.rows32(),
        .rows256 = rows.rows256(),
        .out = p.out->row(0),
        .out_stride = static_cast<std::size_t>(p.out->width),
        .bias = p.bias.empty() ? nullptr : p.bias.data(),
        .accumulate = p.accumulate,
    };
    multiply_tiles(kernels_, args, !p.weight->reads_raw(), first, last, workspace_->tile(thread));
  }
}

void LinearOp::run(Team::Job& job, const Pass& pass) {
  const int n_rows = only_logit_rows_ ? static_cast<int>(pass.logit_rows.size()) : pass.rows();
  if (n_rows == 0) return;
  const auto source = [&](int slot) {
    return only_logit_rows_ ? pass.logit_rows[static_cast<std::size_t>(slot)] : slot;
  };
  if (n_rows > 1) {
    job.share(n_rows, [&](Turn turn) { prepare(workspace_->shared(), source(turn.piece), turn.piece, n_rows); });
  }
  const std::size_t tile_bytes =
      projections_[0].weight->bytes() / static_cast<std::size_t>(projections_[0].weight->tiles());
  const int piece = tiles_at_a_time(tile_bytes, total_tiles_, job.threads());
  job.share((total_tiles_ + piece - 1) / piece, [&](Turn turn) {
    const int first = turn.piece * piece, last = std::min(first + piece, total_tiles_);
    if (n_rows > 1) {
      multiply(workspace_->shared(), workspace_->shared().floats.as<float>(), n_rows, turn.thread, first, last);
      return;
    }
    const Workspace::Rows& own = workspace_->own(turn.thread);
    if (turn.first) prepare(own, source(0), 0, 1);
    multiply(own, norm_ || gate_ ? own.x.as<float>() : x_->row(source(0)), 1, turn.thread, first, last);
  });
}

AddNormOp::AddNormOp(std::string op_name, const Kernels& kernels, std::shared_ptr<Slab> x, std::shared_ptr<Slab> y,
                     NormWeights norm)
    : Op(std::move(op_name)), kernels_(kernels), x_(std::move(x)), y_(std::move(y)), norm_(std::move(norm)) {}

void AddNormOp::run(Team::Job& job, const Pass& pass) {
  job.share(pass.rows(), [&](Turn turn) {
    float* y = y_->row(turn.piece);
    kernels_.rms_norm(y, norm_.weight.data(), norm_.eps, y_->width, y);
    kernels_.add(y, x_->width, x_->row(turn.piece));
  });
}

}  // namespace fucina
