// How a store reads: its queues, and what its threads do.
#include <algorithm>

#include "base/clock.h"
#include "experts/slab.h"
#include "experts/store.h"

namespace fucina {

void ExpertStore::start_reading(Layer& layer, std::uint32_t index, std::uint32_t expert, Queue& queue) {
  Slot& slot = slots_[index];
  if (slot.state != State::Empty) layers_[slot.layer].slot_of[slot.expert] = kNone;
  // Nobody has begun to read what was queued.
  Queue& from = slot.state != State::Reading ? idle_ : slot.queue == Queued::Asked ? asked_ : ahead_;
  layer.slot_of[expert] = index;
  slot.layer = static_cast<std::uint32_t>(&layer - layers_.data());
  slot.expert = expert;
  slot.state = State::Reading;
  slot.unread = slot.unfinished = 3;
  slot.failure.clear();
  slot.queue = &queue == &asked_ ? Queued::Asked : Queued::Ahead;
  queue.splice(queue.end(), from, slot.node);
  work_.notify_all();
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
  const std::uint64_t before = steady_ns();
  const std::uint8_t* raw = read_range(file, layer.places[matrix].offsets[slot.expert], n_bytes, room.data());
  const std::uint64_t between = steady_ns();
  std::uint8_t* out = slot.data + layers_[slot.layer].place_in_slot[matrix];
  store_matrix(kernels_, tiles_, shape, raw, out);
  spent.bytes_read = n_bytes;
  spent.read_ns = between - before;
  spent.pack_ns = steady_ns() - between;
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
