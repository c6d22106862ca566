#include "experts/store.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "kernels/pack.h"

namespace fucina {

namespace {

constexpr std::size_t kLine = 64;
// Uses for each expert of a layer after which all that went before counts half.
constexpr std::uint64_t kWarmth = 32;

std::uint64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

std::array<ExpertMatrix, 3> matrices(const ExpertShape& shape) { return {shape.gate, shape.up, shape.down}; }

std::size_t raw_bytes(const ExpertMatrix& m) {
  const FormatInfo info = format_info(m.format);
  return static_cast<std::size_t>(m.d_in / info.block_weights) * info.block_bytes * static_cast<std::size_t>(m.d_out);
}

int tiles_of(const Kernels& kernels, const ExpertMatrix& m) {
  const int columns = packed_tile_columns(m.format, kernels.columns);
  return (m.d_out + columns - 1) / columns;
}

std::size_t stored_bytes(const Kernels& kernels, bool tiles, const ExpertMatrix& m) {
  const std::size_t n_bytes =
      tiles ? packed_tile_bytes(m.format, m.d_in, kernels.columns) * static_cast<std::size_t>(tiles_of(kernels, m))
            : raw_bytes(m);
  return (n_bytes + kLine - 1) / kLine * kLine;
}

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
                         std::vector<StoredLayer> layers, int io_threads)
    : kernels_(kernels), tiles_(tiles && kernels.columns > 0), files_(std::move(files)), owner_pid_(getpid()) {
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
  make_slots();
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

// All slots, in one piece of memory; those of pinned experts are to be read first.
void ExpertStore::make_slots() {
  std::size_t n_bytes = 0;
  for (const Layer& layer : layers_) {
    n_bytes += static_cast<std::size_t>(layer.what.slots) * slot_bytes(kernels_, tiles_, layer.what.shape);
  }
  memory_ = Buffer(n_bytes);
  std::uint8_t* at = memory_.data();
  for (Layer& layer : layers_) {
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
    for (int i = 0; i < layer.what.slots; i++, at += slot_bytes(kernels_, tiles_, layer.what.shape)) {
      const auto index = static_cast<std::uint32_t>(slots_.size());
      slots_.push_back(Slot{.layer = static_cast<std::uint32_t>(&layer - layers_.data()),
                            .data = at,
                            .node = idle_.insert(idle_.end(), index)});
    }
    layer.end_slot = static_cast<std::uint32_t>(slots_.size());
  }
  for (Layer& layer : layers_) {
    std::uint32_t slot = layer.first_slot;
    for (const std::uint32_t expert : layer.what.pinned) {
      start_reading(layer, slot, expert, ahead_);
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
    if (layer.slot_of[expert] == kNone) start_reading(layer, slot++, expert, ahead_);
  }
}

const ExpertShape& ExpertStore::shape(std::size_t layer) const { return layers_.at(layer).what.shape; }

void ExpertStore::begin(std::size_t layer, std::span<const std::uint32_t> experts) {
  if (owner_pid_ != getpid()) throw ReadFailed("a forked process cannot read experts: load the model there");
  const std::lock_guard lock(mutex_);
  Layer& l = layers_.at(layer);
  clock_++;
  pass_failure_.clear();
  pass_.clear();
  for (const std::uint32_t expert : experts) need(l, expert);
  untaken_ = pass_.size();
  for (std::uint32_t s = l.first_slot; s < l.end_slot; s++) slots_[s].hinted = false;
  if (l.warmth >= kWarmth * l.heat.size()) {
    for (std::uint32_t& heat : l.heat) heat /= 2;
    l.warmth = 0;
  }
  read_missing(l);
}

// Notes that the pass needs an expert, which may be in memory, on its way, or still to be read.
void ExpertStore::need(Layer& layer, std::uint32_t expert) {
  pass_.push_back({expert, false});
  layer.uses[expert]++;
  layer.heat[expert]++;
  layer.warmth++;
  if (layer.slot_of[expert] == kNone) {
    counters_.misses++;
    return;
  }
  Slot& slot = slots_[layer.slot_of[expert]];
  (slot.pinned ? counters_.pinned_hits : counters_.cache_hits)++;
  counters_.hints_useful += slot.hinted;
  slot.wanted = true;
  slot.age = clock_;
  if (slot.state != State::Reading) return;
  if (slot.unread > 0) asked_.splice(asked_.end(), slot.queue == Queued::Ahead ? ahead_ : asked_, slot.node);
  slot.queue = slot.unread > 0 ? Queued::Asked : slot.queue;
  count_busy(+1);
}

// Begins to read what the pass needs, as far as there are slots that nobody needs.
void ExpertStore::read_missing(Layer& layer) {
  const std::size_t n_slots = layer.end_slot - layer.first_slot;
  // In turns, a few slots serve all turns, and the others keep what is asked for most.
  const std::size_t most = pass_.size() > n_slots ? 2 * threads_.size() : n_slots;
  for (const Wanted& wanted : pass_) {
    if (static_cast<std::size_t>(pass_reads_) >= std::max<std::size_t>(most, 1)) return;
    if (wanted.taken || layer.slot_of[wanted.expert] != kNone) continue;
    const std::uint32_t slot = victim(layer);
    if (slot == kNone) return;
    start_reading(layer, slot, wanted.expert, asked_);
    slots_[slot].wanted = true;
    slots_[slot].age = clock_;
    count_busy(+1);
  }
}

// The slot that is missed least: one with nothing in it yet, else of those that nobody needs now the one asked for
// least of late.
std::uint32_t ExpertStore::victim(const Layer& layer) const {
  std::uint32_t best = kNone;
  const auto rank = [&](std::uint32_t s) { return std::pair(layer.heat[slots_[s].expert], slots_[s].age); };
  for (std::uint32_t s = layer.first_slot; s < layer.end_slot; s++) {
    const Slot& slot = slots_[s];
    const bool unbegun = slot.state == State::Reading && slot.unread == 3 && !slot.pinned && !slot.wanted;
    if (slot.state == State::Empty || (unbegun && !slot.hinted)) return s;
    if (slot.state == State::Reading || slot.pinned || slot.wanted || slot.hinted) continue;
    if (best == kNone || rank(s) < rank(best)) best = s;
  }
  return best;
}

void ExpertStore::start_reading(Layer& layer, std::uint32_t index, std::uint32_t expert, Queue& queue) {
  Slot& slot = slots_[index];
  if (slot.state != State::Empty) layer.slot_of[slot.expert] = kNone;
  // Nobody has begun to read what was queued.
  Queue& from = slot.state != State::Reading ? idle_ : slot.queue == Queued::Asked ? asked_ : ahead_;
  layer.slot_of[expert] = index;
  slot.expert = expert;
  slot.state = State::Reading;
  slot.unread = slot.unfinished = 3;
  slot.failure.clear();
  slot.queue = &queue == &asked_ ? Queued::Asked : Queued::Ahead;
  queue.splice(queue.end(), from, slot.node);
  work_.notify_all();
}

std::size_t ExpertStore::take(std::size_t layer, std::span<ExpertView> views) {
  std::unique_lock lock(mutex_);
  Layer& l = layers_.at(layer);
  for (;;) {
    if (!pass_failure_.empty()) throw ReadFailed(pass_failure_);
    if (untaken_ == 0) return 0;
    read_missing(l);
    if (const std::size_t count = ready(l, views)) return count;
    const std::uint64_t before = now_ns();
    done_.wait(lock);
    counters_.wait_ns += now_ns() - before;
  }
}

// Fills `views` with wanted experts that are in memory; how many.
std::size_t ExpertStore::ready(Layer& layer, std::span<ExpertView> views) {
  std::size_t count = 0;
  for (Wanted& wanted : pass_) {
    if (count == views.size()) break;
    if (wanted.taken || layer.slot_of[wanted.expert] == kNone) continue;
    Slot& slot = slots_[layer.slot_of[wanted.expert]];
    if (slot.state != State::Ready) continue;
    wanted.taken = slot.taken = true;
    views[count++] = view(layer, slot);
  }
  untaken_ -= count;
  return count;
}

ExpertView ExpertStore::view(const Layer& layer, const Slot& slot) const {
  const auto at = [&](std::size_t matrix) { return MatrixView{slot.data + layer.place_in_slot[matrix], tiles_}; };
  return {slot.expert, at(0), at(1), at(2)};
}

void ExpertStore::give_back(std::size_t layer) {
  const std::lock_guard lock(mutex_);
  Layer& l = layers_.at(layer);
  for (std::uint32_t s = l.first_slot; s < l.end_slot; s++) {
    if (slots_[s].taken) slots_[s].taken = slots_[s].wanted = false;
  }
  read_missing(l);
}

void ExpertStore::end(std::size_t layer) noexcept {
  const std::lock_guard lock(mutex_);
  Layer& l = layers_[layer];
  for (std::uint32_t s = l.first_slot; s < l.end_slot; s++) slots_[s].taken = slots_[s].wanted = false;
  count_busy(-pass_reads_);
  pass_.clear();
  untaken_ = 0;
}

void ExpertStore::hint(std::size_t layer, std::span<const std::uint32_t> experts) {
  const std::lock_guard lock(mutex_);
  Layer& l = layers_.at(layer);
  for (const std::uint32_t expert : experts) {
    if (l.slot_of[expert] != kNone) continue;
    const std::uint32_t slot = ahead_.size() < 2 * threads_.size() ? victim(l) : kNone;
    if (slot == kNone) {
      counters_.hints_dropped++;
      continue;
    }
    counters_.hinted++;
    start_reading(l, slot, expert, ahead_);
    slots_[slot].hinted = true;
    slots_[slot].age = clock_;
  }
}

void ExpertStore::read_on() {
  Buffer room;
  try {
    room = Buffer(read_room(largest_read_));
  } catch (const std::bad_alloc&) {
    // without room every read of this thread fails, and says so
  }
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || !asked_.empty() || !ahead_.empty(); });
    if (stopping_) return;
    Queue& queue = asked_.empty() ? ahead_ : asked_;
    Slot& slot = slots_[queue.front()];
    const auto matrix = static_cast<std::size_t>(3 - slot.unread);
    if (--slot.unread == 0) idle_.splice(idle_.end(), queue, slot.node);
    lock.unlock();
    StoreCounters spent;
    std::string failure;
    try {
      read_matrix(slot, matrix, room, spent);
    } catch (const ReadFailed& error) {
      failure = error.what();
    }
    lock.lock();
    counters_.bytes_read += spent.bytes_read;
    counters_.read_ns += spent.read_ns;
    counters_.pack_ns += spent.pack_ns;
    if (!failure.empty()) slot.failure = failure;
    if (--slot.unfinished == 0) finish(slot);
  }
}

// Without the mutex: nobody else touches a slot's place while it is being read.
void ExpertStore::read_matrix(const Slot& slot, std::size_t matrix, const Buffer& room, StoreCounters& spent) const {
  const StoredLayer& layer = layers_[slot.layer].what;
  const ExpertMatrix shape = matrices(layer.shape)[matrix];
  const ReadFile& file = files_[layer.places[matrix].files[slot.expert]];
  if (room.size() == 0) throw ReadFailed(file.name + ": no memory to read an expert into");
  const std::size_t n_bytes = raw_bytes(shape);
  const std::uint64_t before = now_ns();
  const std::uint8_t* raw = read_range(file, layer.places[matrix].offsets[slot.expert], n_bytes, room.data());
  const std::uint64_t between = now_ns();
  std::uint8_t* out = slot.data + layers_[slot.layer].place_in_slot[matrix];
  if (tiles_) {
    pack_tiles(shape.format, raw, shape.d_in, shape.d_out, kernels_.columns, kernels_.eights, 0,
               tiles_of(kernels_, shape), out);
  } else {
    std::memcpy(out, raw, n_bytes);
  }
  spent.bytes_read = n_bytes;
  spent.read_ns = between - before;
  spent.pack_ns = now_ns() - between;
}

// All matrices of a slot were read, or one of them could not be.
void ExpertStore::finish(Slot& slot) {
  if (slot.wanted) count_busy(-1);
  slot.state = State::Ready;
  if (!slot.failure.empty()) {
    counters_.failed_reads++;
    if (slot.wanted) pass_failure_ = slot.failure;
    layers_[slot.layer].slot_of[slot.expert] = kNone;
    slot.state = State::Empty;
    slot.pinned = slot.wanted = slot.hinted = false;
  }
  done_.notify_all();
}

// The pass waits for more or fewer slots than before.
void ExpertStore::count_busy(int change) {
  if (pass_reads_ == 0 && change > 0) busy_since_ = now_ns();
  if (pass_reads_ > 0 && pass_reads_ + change == 0) counters_.busy_ns += now_ns() - busy_since_;
  pass_reads_ += change;
}

StoreCounters ExpertStore::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::vector<std::uint64_t> ExpertStore::uses(std::size_t layer) const {
  const std::lock_guard lock(mutex_);
  return layers_.at(layer).uses;
}

void ExpertStore::settle() const {
  std::unique_lock lock(mutex_);
  const auto reading = [](const Slot& slot) { return slot.state == State::Reading; };
  done_.wait(lock, [&] { return std::none_of(slots_.begin(), slots_.end(), reading); });
}

}  // namespace fucina
