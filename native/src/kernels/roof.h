// The compute roof: the multiply-adds of a product and nothing around them. Weights stay in registers, activations come
// from one line of the first-level cache as they do in the kernels, and there are accumulators enough to hide
// latencies.
#pragma once

#include "kernels/kernels.h"
#include "kernels/quants.h"

namespace fucina {

// The same pointer, which the compiler must take for a new one: what is read from it cannot move out of a loop.
template <class T>
FUCINA_INLINE const T* anew(const T* p) {
  asm volatile("" : "+r"(p));
  return p;
}

// The value is needed.
FUCINA_INLINE void keep(std::int32_t x) { asm volatile("" : : "r"(x)); }

alignas(64) constexpr float kProbeFloats[32] = {0.5f, 0.25f, 0.125f};
alignas(64) constexpr std::uint8_t kProbeWeights[256] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
alignas(64) constexpr std::int8_t kProbeRows[64] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12, 13, -14, 15, -16};

template <class V>
double probe_floats(long rounds) {
  constexpr int kRows = 2, kVectors = 5;
  typename V::F w[kVectors], acc[kRows * kVectors];
  unroll<kVectors>(FUCINA_EACH(j) { w[j] = V::load(anew(kProbeFloats) + j); });
  unroll<kRows * kVectors>(FUCINA_EACH(i) { acc[i] = V::zero(); });
  for (long r = 0; r < rounds; r++) {
    const float* x = anew(kProbeFloats);
    unroll<kRows * kVectors>(FUCINA_EACH(i) { acc[i] = V::fma(w[i % kVectors], V::set(x[i / kVectors]), acc[i]); });
  }
  unroll<kRows * kVectors>(FUCINA_EACH(i) { keep(V::sum(V::round(acc[i]))); });
  return static_cast<double>(rounds) * kRows * kVectors * V::kColumns;
}

// Every sum takes one vector of weights over and over; kSums of them are two vectors with kSums / 2 rows.
template <class V, class Quants, int kSums>
double probe_sums(long rounds) {
  using Sum = typename Quants::template Sum<V>;
  const auto a = Quants::template group<V, 0>(anew(kProbeWeights)),
             b = Quants::template group<V, 1>(anew(kProbeWeights));
  Sum sum[kSums];
  unroll<kSums>(FUCINA_EACH(i) { sum[i] = V::template start<Sum>(); });
  for (long r = 0; r < rounds; r++) {
    const std::int8_t* x = anew(kProbeRows);
    unroll<kSums>(FUCINA_EACH(i) { V::dot(sum[i], i % 2 ? b : a, x + i / 2 * 4); });
  }
  unroll<kSums>(FUCINA_EACH(i) { keep(V::sum(V::settle(sum[i]))); });
  return static_cast<double>(rounds) * kSums * V::kVectorBytes;
}

// Sums that hold two groups, each then scaled into 32 bits.
template <class V>
double probe_scaled(long rounds) {
  constexpr int kRows = 4;
  const auto a = SixBits::group<V, 0>(anew(kProbeWeights)), b = SixBits::group<V, 1>(anew(kProbeWeights));
  const auto scale = V::load_scales(anew(kProbeWeights));
  typename V::I32 acc[kRows];
  unroll<kRows>(FUCINA_EACH(m) { acc[m] = V::zero_i32(); });
  for (long r = 0; r < rounds; r++) {
    const std::int8_t* x = anew(kProbeRows);
    unroll<kRows>(FUCINA_EACH(m) {
      auto sum = V::template start<typename V::Sum>();
      V::dot(sum, a, x + 4 * m);
      V::dot(sum, b, x + 4 * m + 16);
      acc[m] = V::add(acc[m], V::settle(sum, scale));
    });
  }
  unroll<kRows>(FUCINA_EACH(m) { keep(V::sum(acc[m])); });
  return static_cast<double>(rounds) * kRows * 2 * V::kVectorBytes;
}

template <class V>
double multiply_adds(Mix mix, long rounds) {
  switch (mix) {
    case Mix::F32:
      return probe_floats<V>(rounds);
    case Mix::Nibbles:
      return probe_sums<V, FourBits, 8>(rounds);
    case Mix::Scaled:
      return probe_scaled<V>(rounds);
    case Mix::Bytes:
      return probe_sums<V, Bytes, 4>(rounds);
  }
  return 0;
}

}  // namespace fucina
