#include "base/roof.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <vector>

#include "base/memory.h"
#include "threads/team.h"

namespace fucina {

double read_bandwidth(std::size_t n_bytes, int threads, int repeats) {
  constexpr std::size_t kChunk = std::size_t{1} << 18;
  const std::size_t chunks = std::max<std::size_t>(n_bytes / kChunk, 1);
  const Buffer buffer(chunks * kChunk);
  for (std::size_t i = 0; i < buffer.size(); i += 64) buffer.data()[i] = static_cast<std::uint8_t>(i >> 6);
  std::atomic<std::uint64_t> keep{0};
  double best = 0;
  for (int r = 0; r < repeats; r++) {
    const auto before = std::chrono::steady_clock::now();
    Team::Job(threads).share(static_cast<int>(chunks), [&](Turn turn) {
      const auto* words = reinterpret_cast<const std::uint64_t*>(buffer.data() + turn.piece * kChunk);
      std::uint64_t sums[8] = {};
      for (std::size_t i = 0; i < kChunk / 8; i += 8) {
        for (int j = 0; j < 8; j++) sums[j] += words[i + j];
      }
      for (const std::uint64_t s : sums) keep.fetch_add(s, std::memory_order_relaxed);
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
    best = std::max(best, static_cast<double>(buffer.size()) / took.count());
  }
  return best;
}

double work_rate(const std::function<double(long)>& work, int threads, int repeats) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kPieceTime(0.002);
  constexpr int kPiecesEach = 10;
  long rounds = 1000;
  for (auto before = Clock::now(); work(rounds), Clock::now() - before < kPieceTime; before = Clock::now()) rounds *= 2;
  const int pieces = kPiecesEach * threads;
  double best = 0;
  for (int r = 0; r < repeats; r++) {
    std::vector<double> done(pieces);
    const auto before = Clock::now();
    Team::Job(threads).share(pieces, [&](Turn turn) { done[turn.piece] = work(rounds); });
    const std::chrono::duration<double> took = Clock::now() - before;
    best = std::max(best, std::accumulate(done.begin(), done.end(), 0.0) / took.count());
  }
  return best;
}

}  // namespace fucina
