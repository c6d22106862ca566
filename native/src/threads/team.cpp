#include "threads/team.h"

#include <sched.h>
#include <unistd.h>

#include <chrono>

namespace fucina {

namespace {

// How long to look before letting others run, and before a helper without a job sleeps: between two passes lies the
// time that Python needs to choose a token.
constexpr int kSpinsBeforeYield = 4000;
constexpr auto kSpinBeforeSleep = std::chrono::microseconds(200);

constexpr std::uint64_t kPieceMask = Team::kMostPieces;

std::uint64_t next_piece(std::uint64_t word) { return word & kPieceMask; }
std::uint64_t piece_count(std::uint64_t word) { return (word >> 20) & kPieceMask; }
int thread_count(std::uint64_t word) { return static_cast<int>((word >> 40) & 1023); }

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
  word_.store(
      (share_number_ << 50) | (static_cast<std::uint64_t>(threads) << 40) | (static_cast<std::uint64_t>(pieces) << 20),
      std::memory_order_release);
  take_pieces(0);
  for (int spins = 0; done_.load(std::memory_order_acquire) != pieces; spins++) wait_a_little(spins);
}

// Takes and does pieces until none is left; returns how many.
int Team::take_pieces(int thread) {
  int taken = 0;
  std::uint64_t word = word_.load(std::memory_order_acquire);
  std::uint64_t share_before = 0;
  while (thread < thread_count(word) && next_piece(word) < piece_count(word)) {
    if (!word_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    // Holding a piece, its share cannot end: call_ and context_ are this share's.
    const bool first = share_number_ != share_before;
    share_before = share_number_;
    call_(context_, Turn{thread, static_cast<int>(next_piece(word)), first});
    done_.fetch_add(1, std::memory_order_acq_rel);
    taken++;
    word = word_.load(std::memory_order_acquire);
  }
  return taken;
}

void Team::help(int thread) {
  auto since = std::chrono::steady_clock::now();
  for (int spins = 0; !stopping_.load(std::memory_order_relaxed); spins++) {
    if (take_pieces(thread) > 0) {
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
