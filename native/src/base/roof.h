// The denominators of every speed claim, measured on the machine at hand.
#pragma once

#include <cstddef>
#include <functional>

namespace fucina {

// Bytes per second that `threads` threads read from a buffer of `n_bytes`, best of `repeats` passes.
double read_bandwidth(std::size_t n_bytes, int threads, int repeats);

// What `work(rounds)` says it did, per second, with `threads` threads at it, best of `repeats` runs of some hundredths
// of a second.
double work_rate(const std::function<double(long)>& work, int threads, int repeats);

}  // namespace fucina
