// How a store begins and ends: its slots, and its threads.
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "experts/slab.h"
#include "experts/store.h"

namespace fucina {

namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

void check(const StoredLayer& layer, std::size_t n_files) {
  const auto n_experts = static_cast<std::size_t>(layer.shape.n_experts);
  const auto slots = static_cast<std::size_t>(layer.slots);
  require(layer.shape.n_experts > 0, "a layer needs an expert");
  require(layer.slots > 0 && slots <= n_experts, "a layer needs from one slot to one for each expert");
  require(layer.pinned.size() < slots || (layer.pinned.size() == slots && slots == n_experts),
          "a layer needs a slot that is not pinned");
  for (const MatrixPlaces& places : layer.places) {
    require(places.files.size() == n_experts && places.offsets.size() == n_experts, "every expert needs its place");
    for (const std::uint32_t file : places.files) require(file < n_files, "an expert lies in no file");
  }
  require(layer.heat.empty() || layer.heat.size() == n_experts, "every expert has its heat, or none");
  for (const std::uint32_t expert : layer.pinned) require(expert < n_experts, "a pinned expert does not exist");
}

}  // namespace

ExpertStore::ExpertStore(const Kernels& kernels, bool tiles, std::vector<ReadFile> files,
                         std::vector<StoredLayer> layers, int spare_slots, int io_threads)
    : kernels_(kernels), tiles_(tiles && kernels.columns > 0), files_(std::move(files)), owner_pid_(getpid()) {
  require(spare_slots >= 0 && spare_slots <= 4096, "a store needs from no to 4096 spare slots");
  require(io_threads > 0 && io_threads <= 256, "a store needs from one to 256 threads to read with");
  std::size_t most = 0;
  for (StoredLayer& layer : layers) {
    check(layer, files_.size());
    most = std::max(most, static_cast<std::size_t>(layer.shape.n_experts));
    layers_.push_back(Layer{.what = std::move(layer),
                            .place_in_slot = {},
                            .first_slot = 0,
                            .end_slot = 0,
                            .slot_of = {},
                            .uses = {},
                            .heat = {}});
  }
  pass_.reserve(most);
  make_slots(spare_slots);
  try {
    for (int thread = 0; thread < io_threads; thread++) threads_.emplace_back(&ExpertStore::read_on, this);
  } catch (...) {
    stop();
    throw;
  }
}

ExpertStore::~ExpertStore() {
  stop();
  for (const ReadFile& file : files_) close(file.descriptor);
}

void ExpertStore::stop() noexcept {
  if (owner_pid_ != getpid()) {
    for (auto& thread : threads_) thread.detach();  // a forked child: the threads exist only in the parent
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (auto& thread : threads_) thread.join();
}

std::size_t ExpertStore::slot_bytes(const Kernels& kernels, bool tiles, const ExpertShape& shape) {
  std::size_t n_bytes = 0;
  for (const ExpertMatrix& m : matrices(shape)) n_bytes += stored_bytes(kernels, tiles && kernels.columns > 0, m);
  return n_bytes;
}

// All slots, in one piece of memory.
void ExpertStore::make_slots(int spare_slots) {
  std::size_t n_bytes = 0, largest_slot = 0;
  for (const Layer& layer : layers_) {
    const std::size_t one = slot_bytes(kernels_, tiles_, layer.what.shape);
    n_bytes += static_cast<std::size_t>(layer.what.slots) * one;
    largest_slot = std::max(largest_slot, one);
  }
  // As for other weights: where reads go past the page cache, nobody waits for the processor's table of pages.
  const bool direct = std::ranges::any_of(files_, &ReadFile::direct);
  memory_ = Buffer(n_bytes + static_cast<std::size_t>(spare_slots) * largest_slot, direct ? Pages::Small : Pages::Huge);
  std::uint8_t* at = memory_.data();
  for (std::uint32_t index = 0; index < layers_.size(); index++) {
    Layer& layer = layers_[index];
    const auto n_experts = static_cast<std::size_t>(layer.what.shape.n_experts);
    const auto shapes = matrices(layer.what.shape);
    for (std::size_t i = 0, place = 0; i < shapes.size(); i++) {
      layer.place_in_slot[i] = place;
      place += stored_bytes(kernels_, tiles_, shapes[i]);
      largest_read_ = std::max(largest_read_, raw_bytes(shapes[i]));
    }
    layer.slot_of.assign(n_experts, kNone);
    layer.uses.assign(n_experts, 0);
    layer.heat = layer.what.heat;
    layer.heat.resize(n_experts);
    layer.first_slot = static_cast<std::uint32_t>(slots_.size());
    at = add_slots(index, layer.what.slots, tiles_, slot_bytes(kernels_, tiles_, layer.what.shape), at);
    layer.end_slot = static_cast<std::uint32_t>(slots_.size());
  }
  first_spare_ = static_cast<std::uint32_t>(slots_.size());
  add_slots(0, spare_slots, false, largest_slot, at);
}

// Adds empty slots that lie from `at` on; where the next ones lie.
std::uint8_t* ExpertStore::add_slots(std::uint32_t layer, int count, bool tiles, std::size_t each_bytes,
                                     std::uint8_t* at) {
  for (int i = 0; i < count; i++, at += each_bytes) {
    const auto index = static_cast<std::uint32_t>(slots_.size());
    slots_.push_back(Slot{.layer = layer, .tiles = tiles, .data = at, .node = idle_.insert(idle_.end(), index)});
  }
  return at;
}

void ExpertStore::fill() {
  const std::lock_guard lock(mutex_);
  begin_filling();
}

// Pinned experts first.
void ExpertStore::begin_filling() {
  if (filled_) return;
  filled_ = true;
  for (Layer& layer : layers_) {
    std::uint32_t slot = layer.first_slot;
    for (const std::uint32_t expert : layer.what.pinned) {
      start_reading(layer, slot, expert, Queued::Ahead);
      slots_[slot++].pinned = true;
    }
  }
  for (Layer& layer : layers_) fill_slots(layer);
}

// Gives free slots to the experts that were used most before, if that is known.
void ExpertStore::fill_slots(Layer& layer) {
  std::vector<std::uint32_t> hottest(layer.heat.size());
  std::iota(hottest.begin(), hottest.end(), 0u);
  std::stable_sort(hottest.begin(), hottest.end(), [&](auto a, auto b) { return layer.heat[a] > layer.heat[b]; });
  std::uint32_t slot = layer.first_slot + static_cast<std::uint32_t>(layer.what.pinned.size());
  for (const std::uint32_t expert : hottest) {
    if (slot == layer.end_slot || layer.heat[expert] == 0) return;
    if (layer.slot_of[expert] == kNone) start_reading(layer, slot++, expert, Queued::Ahead);
  }
}

}  // namespace fucina
