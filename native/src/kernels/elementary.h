// exp, silu and gelu in explicit steps: one source for every lane width, so that every tier gives the same bits.
#pragma once

#include "base/half.h"

namespace fucina {

// e^x for x <= 88; below -87 the result is 0. Range reduction and polynomial as in Cephes' expf; exp(0) is exactly 1.
template <class V>
FUCINA_INLINE typename V::F exp_lanes(typename V::F x) {
  using F = typename V::F;
  const F clamped = V::max(V::min(x, V::set(88.0f)), V::set(-87.0f));
  const auto n = V::round(V::mul(clamped, V::set(1.44269504088896341f)));
  const F whole = V::to_float(n);
  F r = V::fma(whole, V::set(-0.693359375f), clamped);
  r = V::fma(whole, V::set(2.12194440e-4f), r);
  F p = V::set(1.9875691500e-4f);
  p = V::fma(p, r, V::set(1.3981999507e-3f));
  p = V::fma(p, r, V::set(8.3334519073e-3f));
  p = V::fma(p, r, V::set(4.1665795894e-2f));
  p = V::fma(p, r, V::set(1.6666665459e-1f));
  p = V::fma(p, r, V::set(5.0000001201e-1f));
  const F y = V::add(V::fma(V::mul(r, r), p, r), V::set(1.0f));
  return V::where_greater(x, V::set(-87.0f), V::mul(y, V::power_of_two(n)));
}

// x / (1 + e^-x)
template <class V>
FUCINA_INLINE typename V::F silu_lanes(typename V::F x) {
  const auto e = exp_lanes<V>(V::sub(V::zero(), x));
  return V::div(x, V::add(V::set(1.0f), e));
}

// The tanh form, 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), written as x / (1 + e^-2u).
template <class V>
FUCINA_INLINE typename V::F gelu_lanes(typename V::F x) {
  const auto cubic = V::fma(V::mul(V::mul(x, x), x), V::set(0.044715f), x);
  const auto e = exp_lanes<V>(V::mul(cubic, V::set(-1.5957691216057308f)));
  return V::div(x, V::add(V::set(1.0f), e));
}

}  // namespace fucina
