#include "threads/team.h"

#include <sched.h>
#include <unistd.h>

#include <chrono>

namespace fucina {

namespace {

// How long to look before letting others run, and before a helper without a job sleeps: between two passes lies the
// time that Python needs to choose tokens, and to wake a virtual processor costs a fifth of a pass.
constexpr int kSpinsBeforeYield = 4000;
constexpr auto kSpinBeforeSleep = std::chrono::milliseconds(2);

constexpr std::uint64_t kPieceMask = Team::kMostPieces;

std::uint64_t next_piece(std::uint64_t word) { return word & kPieceMask; }
std::uint64_t end_piece(std::uint64_t word) { return (word >> 20) & kPieceMask; }
int thread_count(std::uint64_t word) { return static_cast<int>((word >> 40) & 1023); }
constexpr std::uint64_t kOneFromEnd = std::uint64_t{1} << 20;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// More threads than free cores: whoever we wait for may need this one.
void wait_a_little(int spins) {
  if (spins < kSpinsBeforeYield) {
    pause_briefly();
  } else {
    sched_yield();
  }
}

}  // namespace

Team& Team::instance() {
  static Team team;
  return team;
}

Team::~Team() {
  if (owner_pid_ != getpid()) {
    for (auto& helper : helpers_) helper.detach();  // a forked child: the threads exist only in the parent
    return;
  }
  stopping_.store(true);
  jobs_.fetch_add(1);
  jobs_.notify_all();
  for (auto& helper : helpers_) helper.join();
}

void Team::start_helpers(int count) {
  if (owner_pid_ != getpid()) {
    for (auto& helper : helpers_) helper.detach();
    helpers_.clear();
    sleepers_.store(0);
    owner_pid_ = getpid();
  }
  while (static_cast<int>(helpers_.size()) < count) {
    helpers_.emplace_back(&Team::help, this, static_cast<int>(helpers_.size()) + 1);
  }
}

Team::Job::Job(int threads) : team_(Team::instance()), lock_(team_.one_job_), threads_(threads) {
  if (threads == 1) return;
  team_.start_helpers(threads - 1);
  team_.job_open_.store(true, std::memory_order_seq_cst);
  team_.jobs_.fetch_add(1, std::memory_order_seq_cst);
  if (team_.sleepers_.load(std::memory_order_seq_cst) > 0) team_.jobs_.notify_all();
}

Team::Job::~Job() { team_.job_open_.store(false, std::memory_order_relaxed); }

void Team::share(int threads, int pieces, Call call, const void* context) {
  call_ = call;
  context_ = context;
  share_number_++;
  done_.store(0, std::memory_order_relaxed);
  const auto bound = [&](int thread) {
    return static_cast<std::uint64_t>(pieces) * static_cast<std::uint64_t>(thread) /
           static_cast<std::uint64_t>(threads);
  };
  const std::uint64_t both = (share_number_ << 50) | (static_cast<std::uint64_t>(threads) << 40);
  for (int t = threads - 1; t >= 0; t--) {
    ranges_[static_cast<std::size_t>(t)].word.store(both | (bound(t + 1) << 20) | bound(t), std::memory_order_release);
  }
  take_pieces(0);
  for (int spins = 0; done_.load(std::memory_order_acquire) != pieces; spins++) wait_a_little(spins);
}

// Takes one piece and does it: the first of the thread's own range, the last of another's.
bool Team::take_one(std::atomic<std::uint64_t>& from, int thread, bool own) {
  std::uint64_t word = from.load(std::memory_order_acquire);
  while (thread < thread_count(word) && next_piece(word) < end_piece(word)) {
    const std::uint64_t rest = own ? word + 1 : word - kOneFromEnd;
    if (!from.compare_exchange_weak(word, rest, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    // Holding a piece, its share cannot end: call_ and context_ are this share's.
    Range& range = ranges_[static_cast<std::size_t>(thread)];
    const bool first = range.last_share != share_number_;
    range.last_share = share_number_;
    const auto piece = static_cast<int>(own ? next_piece(word) : end_piece(rest));
    call_(context_, Turn{thread, piece, first});
    return true;
  }
  return false;
}

// Takes and does pieces until none is left; whether there were any.
bool Team::take_pieces(int thread) {
  auto& own = ranges_[static_cast<std::size_t>(thread)].word;
  int taken = 0;
  while (take_one(own, thread, true)) taken++;
  // Pieces that were done but not yet counted keep the share from ending.
  if (taken > 0) done_.fetch_add(taken, std::memory_order_acq_rel);
  bool any = taken > 0;
  const int threads = thread_count(own.load(std::memory_order_relaxed));
  for (int other = thread + 1; other < thread + threads; other++) {
    auto& theirs = ranges_[static_cast<std::size_t>(other % threads)].word;
    while (take_one(theirs, thread, false)) {
      done_.fetch_add(1, std::memory_order_acq_rel);
      any = true;
    }
  }
  return any;
}

void Team::help(int thread) {
  auto since = std::chrono::steady_clock::now();
  for (int spins = 0; !stopping_.load(std::memory_order_relaxed); spins++) {
    if (take_pieces(thread)) {
      spins = 0;
      since = std::chrono::steady_clock::now();
    }
    wait_a_little(spins);
    if (spins % 64 != 63 || job_open_.load(std::memory_order_relaxed)) continue;
    if (std::chrono::steady_clock::now() - since < kSpinBeforeSleep) continue;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t jobs = jobs_.load(std::memory_order_seq_cst);
    if (!job_open_.load(std::memory_order_seq_cst) && !stopping_.load()) jobs_.wait(jobs, std::memory_order_seq_cst);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    spins = 0;
    since = std::chrono::steady_clock::now();
  }
}

}  // namespace fucina
