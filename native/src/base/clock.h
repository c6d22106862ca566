// Time that only grows, for measuring how long something took.
#pragma once

#include <chrono>
#include <cstdint>

namespace fucina {

inline std::uint64_t steady_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

}  // namespace fucina
