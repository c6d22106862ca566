#include <nanobind/stl/array.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "experts/store.h"
#include "tiers/tiers.h"

namespace nb = nanobind;

namespace fucina::bindings {

namespace {

// Of one matrix of a layer's experts: format, d_in, d_out; and of every expert its file and its place there.
using MatrixFields = std::tuple<int, int, int, std::vector<std::uint32_t>, std::vector<std::uint64_t>>;
using FileFields = std::tuple<int, bool, std::string>;

StoredLayer stored_layer(const std::array<MatrixFields, 3>& matrices, int slots, std::vector<std::uint32_t> pinned,
                         std::vector<std::uint32_t> heat) {
  StoredLayer layer{.shape = {}, .places = {}, .slots = slots, .pinned = std::move(pinned), .heat = std::move(heat)};
  ExpertMatrix* const shapes[] = {&layer.shape.gate, &layer.shape.up, &layer.shape.down};
  for (std::size_t i = 0; i < matrices.size(); i++) {
    const auto& [format, d_in, d_out, files, offsets] = matrices[i];
    const FormatInfo info = format_info(static_cast<Format>(format));
    if (d_in <= 0 || d_out <= 0 || d_in % info.block_weights != 0) {
      throw std::invalid_argument("a row must be a whole number of blocks");
    }
    *shapes[i] = {static_cast<Format>(format), d_in, d_out};
    layer.places[i] = {files, offsets};
  }
  layer.shape.n_experts = static_cast<int>(layer.places[0].files.size());
  return layer;
}

std::shared_ptr<ExpertStore> make_store(const std::string& tier, bool tiles, const std::vector<FileFields>& files,
                                        std::vector<StoredLayer> layers, int spare_slots, int io_threads) {
  std::vector<ReadFile> opened;
  for (const auto& [descriptor, direct, name] : files) opened.push_back({descriptor, direct, name});
  return std::make_shared<ExpertStore>(choose_tier(tier), tiles, std::move(opened), std::move(layers), spare_slots,
                                       io_threads);
}

nb::dict counters(const ExpertStore& store) {
  const StoreCounters c = store.counters();
  nb::dict d;
  d["pinned_hits"] = c.pinned_hits;
  d["cache_hits"] = c.cache_hits;
  d["misses"] = c.misses;
  d["bytes_read"] = c.bytes_read;
  d["failed_reads"] = c.failed_reads;
  d["read_ns"] = c.read_ns;
  d["pack_ns"] = c.pack_ns;
  d["busy_ns"] = c.busy_ns;
  d["wait_ns"] = c.wait_ns;
  d["hinted"] = c.hinted;
  d["hints_dropped"] = c.hints_dropped;
  d["hints_useful"] = c.hints_useful;
  return d;
}

}  // namespace

void bind_experts(nb::module_& m) {
  nb::exception<ReadFailed>(m, "ReadFailed");
  nb::class_<StoredLayer>(m, "StoredLayer", "Where the experts of a layer lie, and how many are held in memory.")
      .def(
          "__init__",
          [](StoredLayer* self, const std::array<MatrixFields, 3>& matrices, int slots,
             std::vector<std::uint32_t> pinned, std::vector<std::uint32_t> heat) {
            new (self) StoredLayer(stored_layer(matrices, slots, std::move(pinned), std::move(heat)));
          },
          nb::arg("matrices"), nb::arg("slots"), nb::arg("pinned"), nb::arg("heat"));
  nb::class_<ExpertStore, ExpertSource>(m, "ExpertStore", "Experts that are read from files when a pass needs them.")
      .def(nb::new_(&make_store), nb::arg("tier"), nb::arg("tiles"), nb::arg("files"), nb::arg("layers"),
           nb::arg("spare_slots"), nb::arg("io_threads"))
      .def("fill", &ExpertStore::fill)
      .def("counters", &counters)
      .def("uses", &ExpertStore::uses)
      .def("settle", &ExpertStore::settle, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("layers", &ExpertStore::layers)
      .def_prop_ro("memory_bytes", &ExpertStore::memory_bytes);
  m.def(
      "expert_slot_bytes",
      [](const std::string& tier, bool tiles, const StoredLayer& layer) {
        return ExpertStore::slot_bytes(choose_tier(tier), tiles, layer.shape);
      },
      nb::arg("tier"), nb::arg("tiles"), nb::arg("layer"), "Bytes that one expert of the layer takes in memory.");
}

}  // namespace fucina::bindings
