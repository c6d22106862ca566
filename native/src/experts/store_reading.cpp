// How a store reads: its queues, and what its threads and those of a pass do.
#include <algorithm>

#include "base/clock.h"
#include "experts/slab.h"
#include "experts/store.h"

namespace fucina {

ExpertStore::Queue& ExpertStore::queue(Queued which) {
  return which == Queued::Asked ? asked_ : which == Queued::Near ? near_ : ahead_;
}

void ExpertStore::start_reading(Layer& layer, std::uint32_t index, std::uint32_t expert, Queued which) {
  Slot& slot = slots_[index];
  if (slot.state != State::Empty) layers_[slot.layer].slot_of[slot.expert] = kNone;
  // Nobody has begun to read what was queued.
  Queue &from = slot.state == State::Reading ? queue(slot.queue) : idle_, &to = queue(which);
  layer.slot_of[expert] = index;
  slot.layer = static_cast<std::uint32_t>(&layer - layers_.data());
  slot.expert = expert;
  slot.state = State::Reading;
  slot.unread = slot.unfinished = 3;
  slot.failure.clear();
  slot.queue = which;
  to.splice(to.end(), from, slot.node);
  if (which != Queued::Near) work_.notify_all();
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
    Queue& from = asked_.empty() ? ahead_ : asked_;
    Slot& slot = slots_[from.front()];
    const auto matrix = static_cast<std::size_t>(3 - slot.unread);
    if (--slot.unread == 0) idle_.splice(idle_.end(), from, slot.node);
    lock.unlock();
    Spent spent;
    std::string failure;
    try {
      read_part(slot, matrix, 0, 1, room, spent);
    } catch (const ReadFailed& error) {
      failure = error.what();
    }
    lock.lock();
    count(spent);
    if (!failure.empty()) slot.failure = failure;
    if (--slot.unfinished == 0) finish(slot);
  }
}

bool ExpertStore::is_near(const Layer& layer, std::uint32_t expert) const {
  for (std::size_t matrix = 0; matrix < 3; matrix++) {
    const MatrixPlaces& places = layer.what.places[matrix];
    const std::size_t n_bytes = raw_bytes(matrices(layer.what.shape)[matrix]);
    if (!is_cached(files_[places.files[expert]], places.offsets[expert], n_bytes)) return false;
  }
  return true;
}

void ExpertStore::count(const Spent& spent) {
  counters_.bytes_read += spent.bytes;
  counters_.read_ns += spent.read_ns;
  counters_.pack_ns += spent.pack_ns;
}

// Reads what the page cache has, with the threads of the pass. What fails is in pass_failure_.
void ExpertStore::read_near(std::unique_lock<std::mutex>& lock, Team::Job& job) {
  const std::uint64_t before = steady_ns();
  const auto n_threads = static_cast<std::size_t>(job.threads());
  if (rooms_.size() < n_threads) rooms_.resize(n_threads);
  spent_.assign(n_threads, {});
  now_.assign(near_.begin(), near_.end());
  idle_.splice(idle_.end(), near_);
  for (const std::uint32_t s : now_) slots_[s].unread = 0;
  lock.unlock();
  constexpr int kEach = 3 * kParts;
  job.share(static_cast<int>(now_.size()) * kEach, [&](Turn turn) {
    Slot& slot = slots_[now_[static_cast<std::size_t>(turn.piece / kEach)]];
    const auto thread = static_cast<std::size_t>(turn.thread);
    const int at = turn.piece % kEach;
    Buffer& room = rooms_[thread];
    try {
      if (room.size() == 0) room = Buffer(read_room(largest_read_));
      read_part(slot, static_cast<std::size_t>(at / kParts), at % kParts, kParts, room, spent_[thread]);
    } catch (const std::exception& error) {
      const std::lock_guard guard(mutex_);
      slot.failure = error.what();
    }
  });
  lock.lock();
  for (const Spent& spent : spent_) count(spent);
  counters_.wait_ns += steady_ns() - before;
  for (const std::uint32_t s : now_) {
    slots_[s].unfinished = 0;
    finish(slots_[s]);
  }
}

// Without the mutex: nobody else touches a slot's place while it is being read.
void ExpertStore::read_part(const Slot& slot, std::size_t matrix, int part, int parts, const Buffer& room,
                            Spent& spent) const {
  const StoredLayer& layer = layers_[slot.layer].what;
  const MatrixPart what = part_of(kernels_, slot.tiles, matrices(layer.shape)[matrix], part, parts);
  const ReadFile& file = files_[layer.places[matrix].files[slot.expert]];
  if (room.size() == 0) throw ReadFailed(file.name + ": no memory to read an expert into");
  const std::size_t n_bytes = raw_bytes(what.matrix);
  const std::uint64_t offset = layer.places[matrix].offsets[slot.expert] + what.raw_place;
  std::uint8_t* out = slot.data + layers_[slot.layer].place_in_slot[matrix] + what.stored_place;
  const std::uint64_t before = steady_ns();
  const std::uint8_t* raw = out;
  if (slot.tiles || file.direct) {
    raw = read_range(file, offset, n_bytes, room.data());
  } else {
    read_exactly(file, offset, n_bytes, out);
  }
  const std::uint64_t between = steady_ns();
  if (raw != out) store_matrix(kernels_, slot.tiles, what.matrix, raw, out);
  spent.bytes += n_bytes;
  spent.read_ns += between - before;
  spent.pack_ns += steady_ns() - between;
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

void ExpertStore::settle() {
  std::unique_lock lock(mutex_);
  begin_filling();
  const auto reading = [](const Slot& slot) { return slot.state == State::Reading; };
  done_.wait(lock, [&] { return std::none_of(slots_.begin(), slots_.end(), reading); });
}

}  // namespace fucina
