// Loops that are gone before the compiler thinks of arrays: what they index stays in registers.
#pragma once

#include <utility>

#include "base/half.h"

namespace fucina {

// Calls f<0>(), f<1>(), ... f<n-1>(): loops over registers must be gone before the compiler thinks of arrays.
template <int n, class F>
FUCINA_INLINE void unroll(F f) {
  [&]<int... i>(std::integer_sequence<int, i...>)
      __attribute__((always_inline)) { (f.template operator()<i>(), ...); }(std::make_integer_sequence<int, n>{});
}
#define FUCINA_EACH(i) [&]<int i>() __attribute__((always_inline))

// Calls f<n>() for an n of 1 .. most.
template <int most, class F>
FUCINA_INLINE void with_count(int n, F f) {
  unroll<most>(FUCINA_EACH(i) {
    if (n == i + 1) f.template operator()<i + 1>();
  });
}

}  // namespace fucina
