// The process's one team of threads, which shares out numbered pieces of work.
//
// Every thread has its own range of pieces, so that what it reads lies in a row, and takes others' last pieces when its
// own are done. Nobody waits for a thread that has taken nothing: on a busy machine a helper may be off its processor
// for milliseconds, and whoever is running then simply takes more pieces. Only a piece that somebody has begun is
// waited for.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace fucina {

// One piece in the hands of one thread.
struct Turn {
  int thread;  // 0 is the caller's own; below the job's thread count
  int piece;
  bool first;  // this thread's first piece of this share
};

class Team {
 public:
  // The only team. It grows to the largest number of threads asked for, and starts anew after a fork.
  static Team& instance();

  // The team in one caller's hands; other callers wait. Helpers stay hot from construction to destruction.
  class Job {
   public:
    explicit Job(int threads);
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    int threads() const { return threads_; }

    // Calls work(Turn) once for each piece in [0, pieces), on all threads, and returns when all are done.
    // `pieces` is at most kMostPieces. Allocates nothing.
    template <class Work>
    void share(int pieces, const Work& work) {
      if (threads_ == 1 || pieces <= 1) {
        for (int piece = 0; piece < pieces; piece++) work(Turn{0, piece, piece == 0});
        return;
      }
      team_.share(
          threads_, pieces, [](const void* context, Turn turn) { (*static_cast<const Work*>(context))(turn); }, &work);
    }

   private:
    Team& team_;
    std::unique_lock<std::mutex> lock_;
    const int threads_;
  };

  static constexpr int kMostPieces = (1 << 20) - 1;
  static constexpr int kMostThreads = 1023;

 private:
  using Call = void (*)(const void*, Turn);
  Team() = default;
  ~Team();
  void start_helpers(int count);
  void share(int threads, int pieces, Call call, const void* context);
  bool take_pieces(int thread);
  bool take_one(std::atomic<std::uint64_t>& from, int thread, bool own);
  void help(int thread);

  // A thread's range of the share under way: share (14 bits), threads (10), end (20), next piece (20). A piece is taken
  // by one compare-and-swap of the whole word, so that it can only be a piece of the share that is under way.
  struct alignas(64) Range {
    std::atomic<std::uint64_t> word{0};
    std::uint64_t last_share = 0;  // in which this thread took a piece; its own
  };

  std::mutex one_job_;
  std::vector<std::thread> helpers_;
  int owner_pid_ = 0;
  std::atomic<bool> stopping_{false};

  // The share under way. Written only while no piece of it can be held, read only by holders of a piece.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  std::uint64_t share_number_ = 0;

  std::array<Range, kMostThreads> ranges_;
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<bool> job_open_{false};
  std::atomic<std::uint32_t> jobs_{0};
  std::atomic<int> sleepers_{0};
};

}  // namespace fucina
