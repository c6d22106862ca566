#include "tape/tape.h"

#include <chrono>

namespace fucina {

void run_tape(const Tape& tape, const Pass& pass, int threads) {
  Team::Job job(threads);
  for (const auto& op : tape.ops) op->run(job, pass);
}

std::vector<std::int64_t> profile_tape(const Tape& tape, const Pass& pass, int threads) {
  std::vector<std::int64_t> spent;
  Team::Job job(threads);
  for (const auto& op : tape.ops) {
    const auto before = std::chrono::steady_clock::now();
    op->run(job, pass);
    const auto took = std::chrono::steady_clock::now() - before;
    spent.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  }
  return spent;
}

}  // namespace fucina
