// The process's one team of threads: fork-join that stays hot between jobs and sleeps when there is nothing to do.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fucina {

// What one thread knows while it takes part in a job.
class Worker {
 public:
  Worker(class Team& team, int index, int count) : index(index), count(count), team_(team) {}

  const int index;  // 0 is the caller's own thread
  const int count;  // threads in this job

  // Everybody waits for everybody; afterwards the shared work counter is at zero again.
  void barrier();

  // The next piece of shared work since the last barrier: 0, 1, 2, ... A slow thread simply takes fewer pieces.
  int next_piece();

 private:
  Team& team_;
};

class Team {
 public:
  // The only team. It grows to the largest number of threads asked for, and starts anew after a fork.
  static Team& instance();

  // Run `job` on `count` threads, the caller among them, and wait. Jobs of different callers run one after the other.
  void run(int count, const std::function<void(Worker&)>& job);

 private:
  friend class Worker;
  Team() = default;
  ~Team();
  void start_workers(int count);
  void serve(int index, std::uint32_t seen);

  std::mutex one_job_;
  std::vector<std::thread> threads_;
  int owner_pid_ = 0;

  const std::function<void(Worker&)>* job_ = nullptr;
  std::atomic<bool> stopping_{false};
  // Number of the job and its thread count in one word, so that a thread can never mix up two jobs.
  alignas(64) std::atomic<std::uint32_t> job_word_{0};
  alignas(64) std::atomic<int> running_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> phase_{0};
  alignas(64) std::atomic<int> pieces_{0};
};

}  // namespace fucina
