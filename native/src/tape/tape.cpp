#include "tape/tape.h"

#include <chrono>

namespace fucina {

void run_tape(const Tape& tape, const Pass& pass, int threads) {
  Team::instance().run(threads, [&](Worker& worker) {
    for (const auto& op : tape.ops) {
      op->run(worker, pass);
      worker.barrier();
    }
  });
}

std::vector<std::int64_t> profile_tape(const Tape& tape, const Pass& pass, int threads) {
  std::vector<std::int64_t> spent(tape.ops.size());
  Team::instance().run(threads, [&](Worker& worker) {
    for (std::size_t i = 0; i < tape.ops.size(); i++) {
      const auto before = std::chrono::steady_clock::now();
      tape.ops[i]->run(worker, pass);
      worker.barrier();
      const auto took = std::chrono::steady_clock::now() - before;
      if (worker.index == 0) spent[i] = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
    }
  });
  return spent;
}

}  // namespace fucina
