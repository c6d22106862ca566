#include "tape/mixture.h"

#include <algorithm>
#include <cmath>

#include "kernels/pack.h"

namespace fucina {

namespace {

// Tells the source that a layer is over, however it ended.
class Borrowed {
 public:
  Borrowed(ExpertSource& source, std::size_t layer, std::span<const std::uint32_t> experts)
      : source_(source), layer_(layer) {
    source_.begin(layer, experts);
  }
  ~Borrowed() { source_.end(layer_); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

 private:
  ExpertSource& source_;
  const std::size_t layer_;
};

}  // namespace

void MixtureRoom::reserve(const Kernels& kernels, const RoutingSpec& routing, const ExpertShape& shape) {
  slots_ = std::max(slots_, max_rows * routing.n_used);
  d_model_ = std::max(d_model_, shape.gate.d_in);
  d_expert_ = std::max(d_expert_, shape.gate.d_out);
  n_experts_ = std::max(n_experts_, routing.n_experts);
  const auto floats = [](int rows, int width) {
    return sizeof(float) * static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
  };
  const auto grow = [](Buffer& buffer, std::size_t n_bytes) {
    if (buffer.size() < n_bytes) buffer = Buffer(n_bytes);
  };
  grow(normed, floats(max_rows, d_model_));
  grow(scores, floats(max_rows, (n_experts_ + 7) / 8 * 8));
  grow(gate, floats(slots_, d_expert_));
  grow(up, floats(slots_, d_expert_));
  grow(down, floats(slots_, d_model_));
  chosen.resize(std::max(chosen.size(), static_cast<std::size_t>(slots_)));
  weights.resize(chosen.size());
  grouping.reserve(max_rows, n_experts_, slots_ / max_rows);
  views.resize(static_cast<std::size_t>(n_experts_));
  before.resize(static_cast<std::size_t>(n_experts_) + 1);
  if (!inputs || inputs->max_rows < slots_) {
    inputs = std::make_unique<Workspace>(slots_, threads);
    inners = std::make_unique<Workspace>(slots_, threads);
  }
  inputs->reserve(d_model_);
  inners->reserve(d_expert_);
  if (kernels.columns == 0) return;
  for (const ExpertMatrix& m : {shape.gate, shape.up, shape.down}) {
    inputs->reserve_tile(packed_tile_bytes(m.format, m.d_in, kernels.columns));
  }
}

MixtureOp::MixtureOp(std::string op_name, const Kernels& kernels, std::shared_ptr<MixtureRoom> room,
                     std::shared_ptr<Slab> x, NormWeights norm, std::shared_ptr<Slab> scores,
                     std::shared_ptr<ExpertSource> source, std::size_t layer, RoutingSpec routing,
                     Activation activation, std::optional<SwitchedBranch> shared)
    : Op(std::move(op_name)),
      kernels_(kernels),
      room_(std::move(room)),
      x_(std::move(x)),
      norm_(std::move(norm)),
      scores_(std::move(scores)),
      source_(std::move(source)),
      layer_(layer),
      routing_(routing),
      activation_(activation),
      shared_(std::move(shared)),
      shape_(source_->shape(layer)),
      gate_tiles_(product_tiles(kernels, shape_.gate.format, shape_.gate.d_out)),
      up_tiles_(product_tiles(kernels, shape_.up.format, shape_.up.d_out)),
      down_tiles_(product_tiles(kernels, shape_.down.format, shape_.down.d_out)) {
  room_->reserve(kernels, routing, shape_);
  input_forms_.add(shape_.gate.format);
  input_forms_.add(shape_.up.format);
  inner_forms_.add(shape_.down.format);
}

void MixtureOp::route(int row) const {
  const std::size_t at = static_cast<std::size_t>(row) * routing_.n_used;
  const auto padded = static_cast<std::size_t>((routing_.n_experts + 7) / 8 * 8);
  float* normed = room_->normed.as<float>() + static_cast<std::size_t>(row) * x_->width;
  kernels_.rms_norm(x_->row(row), norm_.weight.data(), norm_.eps, x_->width, normed);
  choose_experts(kernels_, routing_, scores_->row(row),
                 room_->scores.as<float>() + static_cast<std::size_t>(row) * padded, room_->chosen.data() + at,
                 room_->weights.data() + at);
}

// Puts the row in an expert's slot `index` among that expert's rows.
void MixtureOp::prepare_input(const ExpertView& view, int index) const {
  const int n = x_->width, first = room_->grouping.first_slot(view.expert),
            n_rows = room_->grouping.rows_of(view.expert);
  const PreparedRows rows = room_->inputs->shared().from(first, n);
  const int row = room_->grouping.row_of_slot(first + index);
  const float* normed = room_->normed.as<float>() + static_cast<std::size_t>(row) * n;
  if (input_forms_.floats && n_rows == 1) std::copy(normed, normed + n, rows.x);
  put_row(kernels_, input_forms_, normed, n, index, n_rows, rows);
}

void MixtureOp::prepare_inner(const ExpertView& view, int index) const {
  const int n = shape_.gate.d_out, first = room_->grouping.first_slot(view.expert);
  const std::size_t at = static_cast<std::size_t>(first + index) * n;
  const PreparedRows rows = room_->inners->shared().from(first, n);
  float* x = rows.x + static_cast<std::size_t>(index) * n;
  const auto gate = activation_ == Activation::Silu ? kernels_.gate_silu : kernels_.gate_gelu;
  gate(room_->gate.as<float>() + at, room_->up.as<float>() + at, n, x);
  put_row(kernels_, inner_forms_, x, n, index, room_->grouping.rows_of(view.expert), rows);
}

// With one row in the pass, all experts read the same input: that in slot 0.
MixtureOp::Product MixtureOp::first_product(const ExpertView& view, bool of_gate, bool one_row) const {
  const int first = room_->grouping.first_slot(view.expert);
  float* out = (of_gate ? room_->gate : room_->up).as<float>() + static_cast<std::size_t>(first) * shape_.gate.d_out;
  return {of_gate ? shape_.gate : shape_.up, of_gate ? view.gate : view.up,
          room_->inputs->shared().from(one_row ? 0 : first, x_->width), room_->grouping.rows_of(view.expert), out};
}

MixtureOp::Product MixtureOp::down_product(const ExpertView& view) const {
  const int first = room_->grouping.first_slot(view.expert);
  return {shape_.down, view.down, room_->inners->shared().from(first, shape_.down.d_in),
          room_->grouping.rows_of(view.expert), room_->down.as<float>() + static_cast<std::size_t>(first) * x_->width};
}

void MixtureOp::multiply(const Product& p, int begin, int end, int thread) const {
  if (begin >= end) return;
  const LinearArgs args{
      .format = p.matrix.format,
      .weights = p.weights.data,
      .d_in = p.matrix.d_in,
      .d_out = p.matrix.d_out,
      .rows = p.n_rows,
      .x = p.rows.product_input(p.n_rows),
      .rows32 = p.rows.rows32,
      .rows256 = p.rows.rows256,
      .out = p.out,
      .out_stride = static_cast<std::size_t>(p.matrix.d_out),
      .bias = nullptr,
      .accumulate = false,
  };
  multiply_tiles(kernels_, args, p.weights.packed, begin, end, room_->inputs->tile(thread));
}

// All rows of some experts, up to what each expert gives for each of its rows.
void MixtureOp::compute(Team::Job& job, std::span<const ExpertView> views, bool one_row) const {
  const int n_views = static_cast<int>(views.size());
  room_->before[0] = 0;
  for (std::size_t i = 0; i < views.size(); i++) {
    room_->before[i + 1] = room_->before[i] + room_->grouping.rows_of(views[i].expert);
  }
  const auto ends = std::span(room_->before).subspan(1, views.size());
  // Calls work(view, index among its rows) for every row of every expert.
  const auto each_row = [&](const auto& work) {
    job.share(ends.back(), [&](Turn turn) {
      const auto at = static_cast<std::size_t>(std::ranges::upper_bound(ends, turn.piece) - ends.begin());
      work(views[at], turn.piece - room_->before[at]);
    });
  };
  // Calls work(view, begin, end, thread) for all tiles of every expert.
  const auto each_tile = [&](int tiles, std::size_t tile_bytes, const auto& work) {
    const int most = (Team::kMostPieces / n_views);
    const int piece = std::max(tiles_at_a_time(tile_bytes, tiles * n_views, job.threads()), tiles / most + 1);
    const int pieces = (tiles + piece - 1) / piece;
    job.share(pieces * n_views, [&](Turn turn) {
      const int begin = turn.piece % pieces * piece;
      work(views[static_cast<std::size_t>(turn.piece / pieces)], begin, std::min(begin + piece, tiles), turn.thread);
    });
  };
  if (!one_row) each_row([&](const ExpertView& view, int index) { prepare_input(view, index); });
  each_tile(gate_tiles_ + up_tiles_, product_tile_bytes(kernels_, shape_.gate.format, shape_.gate.d_in),
            [&](const ExpertView& view, int begin, int end, int thread) {
              multiply(first_product(view, true, one_row), begin, std::min(end, gate_tiles_), thread);
              multiply(first_product(view, false, one_row), std::max(begin - gate_tiles_, 0), end - gate_tiles_,
                       thread);
            });
  each_row([&](const ExpertView& view, int index) { prepare_inner(view, index); });
  each_tile(down_tiles_, product_tile_bytes(kernels_, shape_.down.format, shape_.down.d_in),
            [&](const ExpertView& view, int begin, int end, int thread) {
              multiply(down_product(view), begin, end, thread);
            });
}

void MixtureOp::combine(int row) const {
  const std::size_t first = static_cast<std::size_t>(row) * routing_.n_used;
  for (int rank = 0; rank < routing_.n_used; rank++) {
    if (room_->chosen[first + static_cast<std::size_t>(rank)] == kLeftOut) break;  // and so are those that follow
    const int slot = room_->grouping.slot_of(row, rank, routing_.n_used);
    const float* y = room_->down.as<float>() + static_cast<std::size_t>(slot) * x_->width;
    kernels_.add_scaled(room_->weights[first + static_cast<std::size_t>(rank)], y, x_->width, x_->row(row));
  }
  if (!shared_) return;
  float shares[8];  // the sigmoid is the softmax of (switch, 0)
  std::fill(shares, shares + 8, -INFINITY);
  shares[0] = shared_->switch_->row(row)[0];
  shares[1] = 0.0f;
  kernels_.softmax(shares, 8);
  kernels_.add_scaled(shares[0], shared_->y->row(row), x_->width, x_->row(row));
}

void MixtureOp::run(Team::Job& job, const Pass& pass) {
  const int rows = pass.rows();
  if (rows == 0) return;
  job.share(rows, [&](Turn turn) { route(turn.piece); });
  room_->grouping.group(rows, routing_.n_experts, routing_.n_used, room_->chosen.data());
  const auto wanted = room_->grouping.wanted();
  room_->foresight.judge(layer_, wanted);
  const int slots = room_->grouping.slots();
  room_->counts.kept += static_cast<std::uint64_t>(slots);
  room_->counts.left_out += static_cast<std::uint64_t>(rows * routing_.n_used - slots);
  if (rows == 1) {
    const PreparedRows input = room_->inputs->shared().from(0, x_->width);
    std::copy_n(room_->normed.as<float>(), x_->width, input.x);
    put_row(kernels_, input_forms_, input.x, x_->width, 0, 1, input);
  }
  {
    const Borrowed borrowed(*source_, layer_, wanted);
    const std::span<ExpertView> views(room_->views.data(), wanted.size());
    while (const std::size_t count = source_->take(layer_, views, job)) {
      compute(job, views.first(count), rows == 1);
      source_->give_back(layer_);
    }
  }
  job.share(rows, [&](Turn turn) { combine(turn.piece); });
}

}  // namespace fucina
