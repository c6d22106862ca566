// Routed experts that stay on disk: read when a pass needs them, kept while there is room.
//
// Memory is slots, a fixed number for each layer and some spare ones for all, taken once. A slot holds one expert: a
// layer's in the tiles that kernels read, a spare one in the rows of the file, for packing them would cost more than
// what passes through gains by it. A pass asks for experts (source.h); those in slots come first, and are computed
// while threads of the store read the others; what the page cache has, the threads of the pass fetch themselves before
// that, for the store's would only take their processors away. An expert asked for more than some in its layer's slots
// takes the place of the one asked for least; any other passes through a spare slot and drives out nothing. Pinned
// experts stay. A pass that needs more experts than there are slots gets them in turns. None of it changes a bit of the
// result.
#pragma once

#include <array>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "experts/read.h"
#include "experts/source.h"
#include "kernels/kernels.h"

namespace fucina {

// One matrix of all experts of a layer in the files: expert e lies at offsets[e] of files[e].
struct MatrixPlaces {
  std::vector<std::uint32_t> files;
  std::vector<std::uint64_t> offsets;
};

struct StoredLayer {
  ExpertShape shape;
  std::array<MatrixPlaces, 3> places;  // gate, up, down
  int slots;                           // including those of pinned experts
  std::vector<std::uint32_t> pinned;   // fewer than slots, unless every expert has one
  std::vector<std::uint32_t> heat;  // how much each was used before: free slots begin with the hottest. Empty: unknown
};

// What a store did since it began. Hits and misses are counted once for each expert that a pass needs.
struct StoreCounters {
  std::uint64_t pinned_hits = 0, cache_hits = 0, misses = 0;
  std::uint64_t bytes_read = 0, failed_reads = 0;
  std::uint64_t read_ns = 0, pack_ns = 0;  // of all threads together
  std::uint64_t busy_ns = 0;               // during which a pass had experts to be read
  std::uint64_t wait_ns = 0;               // of those, during which it had nothing to compute
  std::uint64_t hinted = 0, hints_dropped = 0, hints_useful = 0;
};

class ExpertStore final : public ExpertSource {
 public:
  // `tiles`: pack what layers' slots get into the tiles of `kernels`; otherwise all have the rows of the file.
  // `spare_slots` of the largest layer's size come on top of the layers' own. Nothing is read before `fill` or a pass.
  // The store closes the descriptors in the end; where it cannot be made, they stay the caller's. Throws
  // std::invalid_argument, std::bad_alloc, std::system_error.
  ExpertStore(const Kernels& kernels, bool tiles, std::vector<ReadFile> files, std::vector<StoredLayer> layers,
              int spare_slots, int io_threads);
  ~ExpertStore() override;
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  // Bytes of a slot for experts of that shape.
  static std::size_t slot_bytes(const Kernels& kernels, bool tiles, const ExpertShape& shape);

  const ExpertShape& shape(std::size_t layer) const override;
  void begin(std::size_t layer, std::span<const std::uint32_t> experts) override;
  std::size_t take(std::size_t layer, std::span<ExpertView> views, Team::Job& job) override;
  void give_back(std::size_t layer) override;
  void end(std::size_t layer) noexcept override;
  void hint(std::size_t layer, std::span<const std::uint32_t> experts) override;

  // Begins to read pinned experts and the hottest of earlier runs into the layers' slots, unless that was begun before.
  void fill();

  StoreCounters counters() const;
  // How many passes needed each expert of a layer since the store began.
  std::vector<std::uint64_t> uses(std::size_t layer) const;
  std::size_t layers() const { return layers_.size(); }
  std::size_t memory_bytes() const { return memory_.size(); }
  // Waits until nothing is being read, after `fill`.
  void settle();

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr int kParts = 4;  // of a matrix that the pass's threads read: enough for fair shares
  enum class State { Empty, Reading, Ready };
  enum class Queued { Asked, Ahead, Near };
  using Queue = std::list<std::uint32_t>;  // of slots; its nodes are made once and change queues

  struct Slot {
    std::uint32_t layer, expert = kNone;  // whose expert it holds
    bool tiles;                           // how: in tiles, or in the rows of the file
    State state = State::Empty;
    Queued queue = Queued::Ahead;  // where it is, while some matrix is unread
    bool pinned = false;
    bool hinted = false;    // read on a hint that no pass has answered yet
    bool wanted = false;    // the pass needs it and has not given it back
    bool taken = false;     // the pass is computing with it
    int unread = 0;         // matrices that no thread has begun
    int unfinished = 0;     // matrices that are not there yet
    std::string failure{};  // why one of them could not be read
    std::uint64_t age = 0;  // when a pass needed it last
    std::uint8_t* data;
    Queue::iterator node;
  };
  struct Layer {
    StoredLayer what;
    std::array<std::size_t, 3> place_in_slot;
    std::uint32_t first_slot, end_slot;
    std::vector<std::uint32_t> slot_of;  // expert -> slot, or kNone
    std::vector<std::uint64_t> uses;
    std::vector<std::uint32_t> heat;  // uses of late
    std::uint64_t warmth = 0;         // uses since heat was halved
  };
  struct Wanted {
    std::uint32_t expert;
    bool taken;
  };
  struct Spent {  // by one thread
    std::uint64_t bytes = 0, read_ns = 0, pack_ns = 0;
  };

  void make_slots(int spare_slots);
  std::uint8_t* add_slots(std::uint32_t layer, int count, bool tiles, std::size_t each_bytes, std::uint8_t* at);
  void begin_filling();
  void fill_slots(Layer& layer);
  void stop() noexcept;
  void need(Layer& layer, std::uint32_t expert);
  void read_missing(Layer& layer);
  // Calls work(slot) for every slot that may hold an expert of the layer.
  template <class Work>
  void each_slot(const Layer& layer, const Work& work) {
    for (std::uint32_t s = layer.first_slot; s < layer.end_slot; s++) work(slots_[s]);
    for (std::uint32_t s = first_spare_; s < slots_.size(); s++) {
      if (&layers_[slots_[s].layer] == &layer) work(slots_[s]);
    }
  }
  std::uint32_t victim(const Layer& layer, std::uint32_t heat) const;
  std::uint32_t coldest(const Layer& layer) const;
  std::uint32_t oldest_spare() const;
  Queue& queue(Queued which);
  void start_reading(Layer& layer, std::uint32_t index, std::uint32_t expert, Queued which);
  std::size_t ready(Layer& layer, std::span<ExpertView> views);
  ExpertView view(const Layer& layer, const Slot& slot) const;
  void read_on();
  bool is_near(const Layer& layer, std::uint32_t expert) const;
  void read_near(std::unique_lock<std::mutex>& lock, Team::Job& job);
  void read_part(const Slot& slot, std::size_t matrix, int part, int parts, const Buffer& room, Spent& spent) const;
  void count(const Spent& spent);
  void finish(Slot& slot);
  void count_busy(int change);

  const Kernels& kernels_;
  const bool tiles_;
  const std::vector<ReadFile> files_;
  const int owner_pid_;
  std::vector<Layer> layers_;
  Buffer memory_;
  std::vector<Slot> slots_;
  std::uint32_t first_spare_ = 0;
  bool filled_ = false;
  std::size_t largest_read_ = 0;

  mutable std::mutex mutex_;  // over everything below, and slots and layers
  mutable std::condition_variable work_, done_;
  Queue idle_, asked_, ahead_;  // slots without unread matrices; those a pass waits for; the others
  Queue near_;                  // those a pass waits for whose bytes the page cache has: its own threads read them
  std::vector<Wanted> pass_;
  std::size_t untaken_ = 0;
  int pass_reads_ = 0;  // slots that the pass waits for
  std::string pass_failure_;
  std::vector<std::uint32_t> now_;  // slots that the pass's threads are reading
  std::vector<Buffer> rooms_;       // of each of these threads
  std::vector<Spent> spent_;
  std::uint64_t clock_ = 0, busy_since_ = 0;
  StoreCounters counters_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fucina
