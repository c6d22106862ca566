#include "threads/team.h"

#include <sched.h>
#include <unistd.h>

#include <chrono>

namespace fucina {

namespace {

// How long a thread keeps looking before it lets others run, and before it sleeps. Between two ops of a pass the wait
// is a few microseconds; between two passes it is the time that Python needs to choose a token.
constexpr std::uint32_t kMaxThreads = 1024;
constexpr int kSpinsBeforeYield = 4000;
constexpr auto kSpinBeforeSleep = std::chrono::microseconds(200);

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class Done>
void spin_until(Done done) {
  for (int spins = 0; !done(); spins++) {
    if (spins < kSpinsBeforeYield) {
      pause_briefly();
    } else {
      sched_yield();  // more threads than free cores: whoever we wait for may need this one
    }
  }
}

}  // namespace

void Worker::barrier() {
  if (count == 1) {
    team_.pieces_.store(0, std::memory_order_relaxed);
    return;
  }
  const std::uint32_t phase = team_.phase_.load(std::memory_order_relaxed);
  if (team_.arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    team_.arrived_.store(0, std::memory_order_relaxed);
    team_.pieces_.store(0, std::memory_order_relaxed);
    team_.phase_.store(phase + 1, std::memory_order_release);
  } else {
    spin_until([&] { return team_.phase_.load(std::memory_order_acquire) != phase; });
  }
}

int Worker::next_piece() { return team_.pieces_.fetch_add(1, std::memory_order_relaxed); }

Team& Team::instance() {
  static Team team;
  return team;
}

Team::~Team() {
  if (owner_pid_ != getpid()) {
    for (auto& thread : threads_) thread.detach();  // a forked child: the threads exist only in the parent
    return;
  }
  stopping_.store(true);
  job_word_.fetch_add(kMaxThreads);
  job_word_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Team::start_workers(int count) {
  if (owner_pid_ != getpid()) {
    for (auto& thread : threads_) thread.detach();
    threads_.clear();
    owner_pid_ = getpid();
  }
  while (static_cast<int>(threads_.size()) < count - 1) {
    const int index = static_cast<int>(threads_.size()) + 1;
    threads_.emplace_back(&Team::serve, this, index, job_word_.load());
  }
}

void Team::run(int count, const std::function<void(Worker&)>& job) {
  const std::lock_guard lock(one_job_);
  start_workers(count);
  pieces_.store(0, std::memory_order_relaxed);
  if (count > 1) {
    job_ = &job;
    running_.store(count - 1, std::memory_order_relaxed);
    const std::uint32_t number = job_word_.load(std::memory_order_relaxed) / kMaxThreads + 1;
    job_word_.store(number * kMaxThreads + static_cast<std::uint32_t>(count), std::memory_order_seq_cst);
    job_word_.notify_all();
  }
  Worker self(*this, 0, count);
  job(self);
  if (count > 1) spin_until([&] { return running_.load(std::memory_order_acquire) == 0; });
}

void Team::serve(int index, std::uint32_t seen) {
  while (true) {
    const auto since = std::chrono::steady_clock::now();
    for (int spins = 0; job_word_.load(std::memory_order_acquire) == seen; spins++) {
      pause_briefly();
      if (spins % 64 == 63 && std::chrono::steady_clock::now() - since > kSpinBeforeSleep) {
        job_word_.wait(seen, std::memory_order_acquire);
      }
    }
    seen = job_word_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    const int count = static_cast<int>(seen % kMaxThreads);
    if (index >= count) continue;
    Worker self(*this, index, count);
    (*job_)(self);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace fucina
