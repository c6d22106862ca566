#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "bindings.h"
#include "experts/resident.h"
#include "tape/attention.h"
#include "tape/embed.h"
#include "tape/mixture.h"
#include "tape/pilot.h"
#include "tape/product.h"
#include "tiers/tiers.h"

namespace nb = nanobind;

namespace fucina::bindings {

namespace {

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Memory = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

std::vector<float> floats(const Floats& a) { return {a.data(), a.data() + a.size()}; }

std::size_t raw_bytes(Format format, int d_in, int d_out) {
  const FormatInfo info = format_info(format);
  require(d_in > 0 && d_out > 0 && d_in % info.block_weights == 0, "a row must be a whole number of blocks");
  return static_cast<std::size_t>(d_in / info.block_weights) * info.block_bytes * static_cast<std::size_t>(d_out);
}

// One backend: a tier, a thread count, the room to prepare rows in, and the KV pool.
class Backend {
 public:
  Backend(int max_rows, int threads, const std::string& tier, bool repack)
      : kernels_(choose_tier(tier)),
        threads_(threads),
        repack_(repack),
        workspace_(std::make_shared<Workspace>(max_rows, threads)),
        mixture_room_(std::make_shared<MixtureRoom>(max_rows, threads)) {
    require(max_rows >= 1 && threads >= 1 && threads < 1024, "max_rows and threads must be at least 1");
  }

  std::string tier() const { return kernels_.name; }
  int threads() const { return threads_; }

  std::shared_ptr<Slab> slab(int width) const {
    require(width > 0, "a slab needs a width");
    return std::make_shared<Slab>(workspace_->max_rows, width);
  }

  void bind_pool(const Memory& memory, std::size_t block_bytes, int format) {
    require(block_bytes > 0 && memory.size() % block_bytes == 0, "the pool must be a whole number of blocks");
    pool_ = memory.data();
    n_blocks_ = memory.size() / block_bytes;
    block_bytes_ = block_bytes;
    require(format >= 0 && format <= 2, "unknown KV format");
    kv_format_ = static_cast<KvFormat>(format);
  }

  // For weights after this.
  void use_small_pages() { weights_ = std::make_shared<Arena>(Pages::Small); }

  std::shared_ptr<PackedWeight> weight(const Bytes& raw, int format, int d_in, int d_out) const {
    const auto f = static_cast<Format>(format);
    require(raw.size() == raw_bytes(f, d_in, d_out), "a weight's bytes do not fit its shape");
    nb::gil_scoped_release release;
    return std::make_shared<PackedWeight>(kernels_, f, raw.data(), d_in, d_out, threads_, weights_, repack_);
  }

  std::shared_ptr<Op> embed(std::string name, const Bytes& raw, int format, int vocab, float scale,
                            std::shared_ptr<Slab> out) {
    const auto f = static_cast<Format>(format);
    require(raw.size() == raw_bytes(f, out->width, vocab), "the embedding's bytes do not fit its shape");
    vocab_ = vocab;
    return std::make_shared<EmbedOp>(std::move(name), f, raw.data(), scale, std::move(out));
  }

  std::shared_ptr<Op> angles(std::string name, const Doubles& frequencies, double magnitude,
                             std::shared_ptr<Slab> out) const {
    require(2 * frequencies.size() <= static_cast<std::size_t>(out->width), "the angles' slab is too narrow");
    return std::make_shared<AnglesOp>(std::move(name),
                                      std::vector<double>(frequencies.data(), frequencies.data() + frequencies.size()),
                                      magnitude, std::move(out));
  }

  std::shared_ptr<Op> linear(std::string name, std::shared_ptr<Slab> x, std::optional<NormWeights> norm,
                             std::optional<GateInput> gate, std::vector<Projection> projections,
                             bool only_logit_rows) const {
    require(!projections.empty(), "a linear op needs a projection");
    require(x->width % 8 == 0, "the input of a product must be a multiple of 8 wide");
    require(!(norm && gate), "a linear op takes a norm or a gate, not both");
    require(!only_logit_rows || norm, "the output head needs a norm");
    require(!norm || norm->weight.size() == static_cast<std::size_t>(x->width), "the norm does not fit its input");
    require(!gate || gate->up->width == x->width, "the gate does not fit its input");
    for (const Projection& p : projections) {
      require(p.weight->d_in == x->width, "a weight does not fit its input");
      require(p.weight->d_out == p.out->width, "a weight does not fit its output");
      require(p.bias.empty() || p.bias.size() == static_cast<std::size_t>(p.weight->d_out), "a bias does not fit");
    }
    return std::make_shared<LinearOp>(std::move(name), kernels_, workspace_, std::move(x), std::move(norm),
                                      std::move(gate), std::move(projections), only_logit_rows);
  }

  std::shared_ptr<Op> add_norm(std::string name, std::shared_ptr<Slab> x, std::shared_ptr<Slab> y,
                               NormWeights norm) const {
    require(x->width % 8 == 0, "a norm must be a multiple of 8 wide");
    require(x->width == y->width && norm.weight.size() == static_cast<std::size_t>(x->width),
            "add_norm: widths differ");
    return std::make_shared<AddNormOp>(std::move(name), kernels_, std::move(x), std::move(y), std::move(norm));
  }

  // x += the experts that `scores` choose, of layer `layer` of `source`.
  std::shared_ptr<Op> mixture(std::string name, std::shared_ptr<Slab> x, NormWeights norm, std::shared_ptr<Slab> scores,
                              std::shared_ptr<ExpertSource> source, std::size_t layer, int n_used, bool renormalize,
                              float scale, float top_p, bool gelu, std::shared_ptr<Slab> shared,
                              std::shared_ptr<Slab> switch_) const {
    const ExpertShape& shape = source->shape(layer);
    require(x->width % 8 == 0 && shape.gate.d_out % 8 == 0, "a mixture must be a multiple of 8 wide, inside too");
    require(norm.weight.size() == static_cast<std::size_t>(x->width), "the norm does not fit its input");
    require(scores->width == shape.n_experts, "the scores do not fit the experts");
    require(shape.gate.d_in == x->width && shape.up.d_in == x->width, "the experts do not fit their input");
    require(shape.up.d_out == shape.gate.d_out && shape.down.d_in == shape.gate.d_out,
            "an expert's matrices do not fit");
    require(shape.down.d_out == x->width, "the experts do not fit their output");
    require(n_used >= 1 && n_used <= shape.n_experts, "a row uses 1 to all experts");
    require(static_cast<std::size_t>(workspace_->max_rows) * static_cast<std::size_t>(n_used) <= Team::kMostPieces,
            "too many experts for so many rows");
    require(!shared || (switch_ && shared->width == x->width && switch_->width == 1), "the shared branch does not fit");
    std::optional<SwitchedBranch> branch;
    if (shared) branch = SwitchedBranch{std::move(shared), std::move(switch_)};
    require(top_p >= 0.0f, "a share cannot be negative");
    const RoutingSpec routing{shape.n_experts, n_used, renormalize, scale, top_p};
    return std::make_shared<MixtureOp>(std::move(name), kernels_, mixture_room_, std::move(x), std::move(norm),
                                       std::move(scores), std::move(source), layer, routing,
                                       gelu ? Activation::Gelu : Activation::Silu, std::move(branch));
  }

  // Hints at the experts that `router` would choose of a later layer of `source`.
  std::shared_ptr<Op> pilot(std::string name, std::shared_ptr<Slab> x, NormWeights norm, Projection router,
                            std::shared_ptr<ExpertSource> source, std::size_t layer, int n_used, float top_p) const {
    const int n_experts = source->shape(layer).n_experts;
    std::shared_ptr<Slab> scores = router.out;
    require(x->width % 8 == 0 && router.weight->d_in == x->width, "the router does not fit its input");
    require(norm.weight.size() == static_cast<std::size_t>(x->width), "the norm does not fit its input");
    require(scores->width == n_experts && router.weight->d_out == n_experts, "the scores do not fit the experts");
    require(n_used >= 1 && n_used <= n_experts, "a row uses 1 to all experts");
    auto product = std::make_unique<LinearOp>(name, kernels_, workspace_, std::move(x), std::move(norm), std::nullopt,
                                              std::vector<Projection>{std::move(router)}, false);
    return std::make_shared<PilotOp>(std::move(name), kernels_, mixture_room_, std::move(product), std::move(scores),
                                     std::move(source), layer, RoutingSpec{n_experts, n_used, false, 1.0f, top_p});
  }

  // Of the experts that rows chose, how many were used, and how many left out.
  std::tuple<std::uint64_t, std::uint64_t> expert_uses() const {
    const RoutingCounts& counts = mixture_room_->counts;
    return {counts.kept, counts.left_out};
  }

  // Of the experts that layers needed where pilots had looked ahead, how many those had foreseen, and how many all
  // were.
  std::tuple<std::uint64_t, std::uint64_t> foresight() const {
    const Foresight& foresight = mixture_room_->foresight;
    return {foresight.right, foresight.needed};
  }

  std::shared_ptr<Op> attention(std::string name, AttentionShape shape, std::size_t k_offset, std::size_t v_offset,
                                std::size_t head_bytes, std::optional<NormWeights> q_norm,
                                std::optional<NormWeights> k_norm, std::shared_ptr<Slab> q, std::shared_ptr<Slab> k,
                                std::shared_ptr<Slab> v, std::shared_ptr<Slab> angles,
                                std::shared_ptr<Slab> out) const {
    const int d = shape.d_head;
    require(pool_ != nullptr, "bind a KV pool before attention");
    const bool q8 = kv_format_ == KvFormat::Q8_0;
    require(d > 0 && d % 8 == 0 && (!q8 || d % 32 == 0), "d_head must be a multiple of 8 (of 32 for q8_0)");
    require(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "heads must be a multiple of kv_heads");
    require(shape.d_rotary >= 0 && shape.d_rotary <= d && shape.d_rotary % 2 == 0,
            "d_rotary must be even, up to d_head");
    require(q->width == shape.heads * d && out->width == q->width, "attention: q or out has the wrong width");
    require(k->width == shape.kv_heads * d && v->width == k->width, "attention: k or v has the wrong width");
    require(angles->width >= shape.d_rotary, "attention: the angles are too narrow");
    require(!q_norm || q_norm->weight.size() == static_cast<std::size_t>(d), "attention: q_norm does not fit");
    require(!k_norm || k_norm->weight.size() == static_cast<std::size_t>(d), "attention: k_norm does not fit");
    const std::size_t need = static_cast<std::size_t>(64 * d) * (q8                            ? 1
                                                                 : kv_format_ == KvFormat::F16 ? 2
                                                                                               : 4) +
                             (q8 ? 64u * (d / 32) * 4 : 0);
    require(head_bytes >= need, "attention: a head's share of a KV block is too small");
    require(k_offset + head_bytes * shape.kv_heads <= block_bytes_, "attention: K lies outside the block");
    require(v_offset + head_bytes * shape.kv_heads <= block_bytes_, "attention: V lies outside the block");
    return std::make_shared<AttentionOp>(
        std::move(name), kernels_, threads_, shape,
        KvLayout{pool_, block_bytes_, k_offset, v_offset, head_bytes, static_cast<int>(n_blocks_), kv_format_},
        std::move(q_norm), std::move(k_norm), std::move(q), std::move(k), std::move(v), std::move(angles),
        std::move(out));
  }

  void run(const Tape& tape, const nb::tuple& spans) {
    fill(spans);
    nb::gil_scoped_release release;
    run_tape(tape, pass_, threads_);
  }

  std::vector<std::int64_t> profile(const Tape& tape, const nb::tuple& spans) {
    fill(spans);
    nb::gil_scoped_release release;
    return profile_tape(tape, pass_, threads_);
  }

 private:
  // Read the spans of a Batch (ops/batch.py) and check every number before an op can use it as an address.
  void fill(const nb::tuple& spans) {
    pass_.tokens.clear();
    pass_.positions.clear();
    pass_.spans.clear();
    pass_.logit_rows.clear();
    pass_.tables.clear();
    for (const nb::handle fields : spans) {
      const auto span = nb::cast<nb::tuple>(fields);
      require(span.size() == 4, "a span has tokens, a start, blocks and a number of logits");
      const int start = nb::cast<int>(span[1]), n_logits = nb::cast<int>(span[3]);
      const int first = pass_.rows();
      const nb::handle tokens = span[0], blocks = span[2];
      for (const nb::handle token : tokens) {
        const auto id = nb::cast<std::int32_t>(token);
        require(id >= 0 && id < vocab_, "a token id lies outside the vocabulary");
        pass_.positions.push_back(start + static_cast<int>(pass_.tokens.size()) - first);
        pass_.tokens.push_back(id);
      }
      const int rows = pass_.rows() - first;
      const std::size_t table = pass_.tables.size();
      for (const nb::handle block : blocks) {
        const auto id = nb::cast<std::int32_t>(block);
        require(id >= 0 && static_cast<std::size_t>(id) < n_blocks_, "a block id lies outside the pool");
        pass_.tables.push_back(id);
      }
      const std::size_t covered = (pass_.tables.size() - table) * 64;
      require(rows > 0 && start >= 0 && start < (1 << 30), "a span needs rows, and a start that is not negative");
      require(static_cast<std::size_t>(start) + static_cast<std::size_t>(rows) <= covered,
              "a span's block table does not cover its positions");
      require(n_logits >= 0 && n_logits <= rows, "a span cannot give more logits than it has rows");
      for (int i = rows - n_logits; i < rows; i++) pass_.logit_rows.push_back(first + i);
      pass_.spans.push_back({first, rows, start, reinterpret_cast<const std::int32_t*>(table)});
    }
    require(pass_.rows() <= workspace_->max_rows, "more rows than a pass can take");
    // The table vector has stopped growing: turn the offsets kept above into addresses.
    for (Span& span : pass_.spans) {
      span.blocks = pass_.tables.data() + reinterpret_cast<std::uintptr_t>(span.blocks);
    }
  }

  const Kernels& kernels_;
  const int threads_;
  const bool repack_;
  std::shared_ptr<Workspace> workspace_;
  std::shared_ptr<MixtureRoom> mixture_room_;
  std::shared_ptr<Arena> weights_ = std::make_shared<Arena>();
  std::uint8_t* pool_ = nullptr;
  std::size_t n_blocks_ = 0, block_bytes_ = 0;
  KvFormat kv_format_ = KvFormat::F16;
  std::int32_t vocab_ = 0;
  Pass pass_;
};

}  // namespace

void bind_ops(nb::module_& m) {
  nb::class_<Slab>(m, "Slab", "A buffer of activations, (max_rows, width) f32.")
      .def_ro("width", &Slab::width)
      .def(
          "array",
          [](nb::handle_t<Slab> self, std::size_t rows) {
            const auto& slab = nb::cast<const Slab&>(self);
            const auto width = static_cast<std::size_t>(slab.width);
            if (rows * width * sizeof(float) > slab.memory.size())
              throw std::invalid_argument("more rows than the slab has");
            return nb::ndarray<nb::numpy, float, nb::ndim<2>>(slab.row(0), {rows, width}, self);
          },
          nb::arg("rows"), "The first `rows` rows as an array over the slab's own memory.");
  nb::class_<Op>(m, "Op", "A bound op of a tape.").def_ro("name", &Op::name);
  nb::class_<PackedWeight>(m, "PackedWeight", "A weight in the form its tier computes from.")
      .def_prop_ro("n_bytes", &PackedWeight::bytes)
      .def_prop_ro("reads_raw", &PackedWeight::reads_raw);
  nb::class_<ExpertSource>(m, "ExpertSource", "Where the matrices of routed experts come from.");
  nb::class_<ResidentExperts, ExpertSource>(m, "ResidentExperts", "All experts in memory.")
      .def(nb::init<>())
      .def(
          "add_layer",
          [](ResidentExperts& self, const std::vector<std::shared_ptr<PackedWeight>>& gate,
             const std::vector<std::shared_ptr<PackedWeight>>& up,
             const std::vector<std::shared_ptr<PackedWeight>>& down) {
            require(gate.size() == up.size() && up.size() == down.size(), "an expert has three matrices");
            std::vector<ResidentExpert> experts;
            for (std::size_t i = 0; i < gate.size(); i++) experts.push_back({gate[i], up[i], down[i]});
            return self.add_layer(std::move(experts));
          },
          "The matrices of experts 0, 1, ... of the next layer; returns its number.");
  nb::class_<Tape>(m, "Tape", "Bound ops in the order they run.")
      .def("__init__", [](Tape* self, const std::vector<std::shared_ptr<Op>>& ops) { new (self) Tape{ops}; })
      .def("__len__", [](const Tape& t) { return t.ops.size(); });
  nb::class_<NormWeights>(m, "Norm").def("__init__", [](NormWeights* self, const Floats& weight, float eps) {
    new (self) NormWeights{floats(weight), eps};
  });
  nb::class_<GateInput>(m, "Gate").def("__init__", [](GateInput* self, std::shared_ptr<Slab> up, bool gelu) {
    new (self) GateInput{std::move(up), gelu ? Activation::Gelu : Activation::Silu};
  });
  nb::class_<Projection>(m, "Projection")
      .def(
          "__init__",
          [](Projection* self, std::shared_ptr<PackedWeight> weight, std::shared_ptr<Slab> out,
             const std::optional<Floats>& bias, bool accumulate) {
            new (self)
                Projection{std::move(weight), std::move(out), bias ? floats(*bias) : std::vector<float>{}, accumulate};
          },
          nb::arg("weight"), nb::arg("out"), nb::arg("bias").none(), nb::arg("accumulate"));
  nb::class_<AttentionShape>(m, "AttentionShape")
      .def(
          "__init__",
          [](AttentionShape* self, int heads, int kv_heads, int d_head, int d_rotary, bool halves, float scale,
             int window) { new (self) AttentionShape{heads, kv_heads, d_head, d_rotary, halves, scale, window}; },
          nb::arg("heads"), nb::arg("kv_heads"), nb::arg("d_head"), nb::arg("d_rotary"), nb::arg("halves"),
          nb::arg("scale"), nb::arg("window"));
  nb::class_<Backend>(m, "Backend", "A tier, a thread count and the rooms they work in.")
      .def(nb::init<int, int, const std::string&, bool>(), nb::arg("max_rows"), nb::arg("threads"), nb::arg("tier"),
           nb::arg("repack"))
      .def_prop_ro("tier", &Backend::tier)
      .def_prop_ro("threads", &Backend::threads)
      .def("slab", &Backend::slab)
      .def("bind_pool", &Backend::bind_pool)
      .def("use_small_pages", &Backend::use_small_pages)
      .def("weight", &Backend::weight)
      .def("embed", &Backend::embed)
      .def("angles", &Backend::angles)
      .def("linear", &Backend::linear, nb::arg("name"), nb::arg("x"), nb::arg("norm").none(), nb::arg("gate").none(),
           nb::arg("projections"), nb::arg("only_logit_rows"))
      .def("add_norm", &Backend::add_norm)
      .def("mixture", &Backend::mixture, nb::arg("name"), nb::arg("x"), nb::arg("norm"), nb::arg("scores"),
           nb::arg("source"), nb::arg("layer"), nb::arg("n_used"), nb::arg("renormalize"), nb::arg("scale"),
           nb::arg("top_p"), nb::arg("gelu"), nb::arg("shared").none(), nb::arg("switch").none())
      .def("pilot", &Backend::pilot)
      .def("expert_uses", &Backend::expert_uses)
      .def("foresight", &Backend::foresight)
      .def("attention", &Backend::attention, nb::arg("name"), nb::arg("shape"), nb::arg("k_offset"),
           nb::arg("v_offset"), nb::arg("head_bytes"), nb::arg("q_norm").none(), nb::arg("k_norm").none(), nb::arg("q"),
           nb::arg("k"), nb::arg("v"), nb::arg("angles"), nb::arg("out"))
      .def("run", &Backend::run)
      .def("profile", &Backend::profile);
}

}  // namespace fucina::bindings
