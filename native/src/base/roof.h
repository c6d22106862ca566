// The denominators of every speed claim, measured on the machine at hand.
#pragma once

#include <cstddef>

namespace fucina {

// Bytes per second that `threads` threads read from a buffer of `n_bytes`, best of `repeats` passes.
double read_bandwidth(std::size_t n_bytes, int threads, int repeats);

}  // namespace fucina
