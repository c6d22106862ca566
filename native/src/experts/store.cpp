// What a store does for a pass.
#include "experts/store.h"

#include <unistd.h>

#include <algorithm>

#include "base/clock.h"

namespace fucina {

namespace {

// Uses for each expert of a layer after which all that went before counts half.
constexpr std::uint64_t kWarmth = 32;

}  // namespace

const ExpertShape& ExpertStore::shape(std::size_t layer) const { return layers_.at(layer).what.shape; }

void ExpertStore::begin(std::size_t layer, std::span<const std::uint32_t> experts) {
  if (owner_pid_ != getpid()) throw ReadFailed("a forked process cannot read experts: load the model there");
  const std::lock_guard lock(mutex_);
  Layer& l = layers_.at(layer);
  begin_filling();
  clock_++;
  pass_failure_.clear();
  pass_.clear();
  for (const std::uint32_t expert : experts) need(l, expert);
  untaken_ = pass_.size();
  each_slot(l, [](Slot& slot) { slot.hinted = false; });
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
  if (slot.unread > 0) asked_.splice(asked_.end(), queue(slot.queue), slot.node);
  slot.queue = slot.unread > 0 ? Queued::Asked : slot.queue;
  count_busy(+1);
}

// Begins to read what the pass needs, as far as there are slots that nobody needs.
void ExpertStore::read_missing(Layer& layer) {
  const std::size_t n_slots = layer.end_slot - layer.first_slot + slots_.size() - first_spare_;
  // In turns, a few slots serve all turns, and the others keep what is asked for most.
  const std::size_t most = pass_.size() > n_slots ? 2 * threads_.size() : n_slots;
  for (const Wanted& wanted : pass_) {
    if (static_cast<std::size_t>(pass_reads_) >= std::max<std::size_t>(most, 1)) return;
    if (wanted.taken || layer.slot_of[wanted.expert] != kNone) continue;
    const std::uint32_t slot = victim(layer, layer.heat[wanted.expert]);
    if (slot == kNone) return;
    start_reading(layer, slot, wanted.expert, is_near(layer, wanted.expert) ? Queued::Near : Queued::Asked);
    slots_[slot].wanted = true;
    slots_[slot].age = clock_;
    count_busy(+1);
  }
}

// The slot that an expert of that heat is read into: its layer's coldest if it is hotter than what is there, else a
// spare one if any is free.
std::uint32_t ExpertStore::victim(const Layer& layer, std::uint32_t heat) const {
  const std::uint32_t own = coldest(layer);
  const bool warmer = own != kNone && (slots_[own].state != State::Ready || layer.heat[slots_[own].expert] < heat);
  const std::uint32_t spare = warmer ? kNone : oldest_spare();
  return spare == kNone ? own : spare;
}

// Of a layer's own slots, one with nothing in it yet, else of those that nobody needs now the one asked for least of
// late.
std::uint32_t ExpertStore::coldest(const Layer& layer) const {
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

// Of the spare slots that nobody needs now, the one that was needed least lately.
std::uint32_t ExpertStore::oldest_spare() const {
  std::uint32_t best = kNone;
  for (std::uint32_t s = first_spare_; s < slots_.size(); s++) {
    const Slot& slot = slots_[s];
    if (slot.state == State::Empty) return s;
    if (slot.state == State::Reading || slot.wanted || slot.hinted) continue;
    if (best == kNone || slot.age < slots_[best].age) best = s;
  }
  return best;
}

std::size_t ExpertStore::take(std::size_t layer, std::span<ExpertView> views, Team::Job& job) {
  std::unique_lock lock(mutex_);
  Layer& l = layers_.at(layer);
  for (;;) {
    if (!pass_failure_.empty()) throw ReadFailed(pass_failure_);
    if (untaken_ == 0) return 0;
    read_missing(l);
    if (!near_.empty()) {
      read_near(lock, job);
      continue;  // which may have failed
    }
    if (const std::size_t count = ready(l, views)) return count;
    const std::uint64_t before = steady_ns();
    done_.wait(lock);
    counters_.wait_ns += steady_ns() - before;
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
  const auto at = [&](std::size_t matrix) { return MatrixView{slot.data + layer.place_in_slot[matrix], slot.tiles}; };
  return {slot.expert, at(0), at(1), at(2)};
}

void ExpertStore::give_back(std::size_t layer) {
  const std::lock_guard lock(mutex_);
  Layer& l = layers_.at(layer);
  each_slot(l, [](Slot& slot) {
    if (slot.taken) slot.taken = slot.wanted = false;
  });
  read_missing(l);
}

void ExpertStore::end(std::size_t layer) noexcept {
  const std::lock_guard lock(mutex_);
  Layer& l = layers_[layer];
  each_slot(l, [](Slot& slot) { slot.taken = slot.wanted = false; });
  count_busy(-pass_reads_);
  pass_.clear();
  untaken_ = 0;
  if (near_.empty()) return;
  for (const std::uint32_t s : near_) slots_[s].queue = Queued::Ahead;  // the pass failed before it read them
  ahead_.splice(ahead_.end(), near_);
  work_.notify_all();
}

void ExpertStore::hint(std::size_t layer, std::span<const std::uint32_t> experts) {
  const std::lock_guard lock(mutex_);
  begin_filling();
  Layer& l = layers_.at(layer);
  for (const std::uint32_t expert : experts) {
    if (l.slot_of[expert] != kNone) continue;
    const std::uint32_t slot = ahead_.size() < 2 * threads_.size() ? victim(l, l.heat[expert] + 1) : kNone;
    if (slot == kNone) {
      counters_.hints_dropped++;
      continue;
    }
    counters_.hinted++;
    start_reading(l, slot, expert, Queued::Ahead);
    slots_[slot].hinted = true;
    slots_[slot].age = clock_;
  }
}

// The pass waits for more or fewer slots than before.
void ExpertStore::count_busy(int change) {
  if (pass_reads_ == 0 && change > 0) busy_since_ = steady_ns();
  if (pass_reads_ > 0 && pass_reads_ + change == 0) counters_.busy_ns += steady_ns() - busy_since_;
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

}  // namespace fucina
