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
alignas(64) constexpr std::uint8_t kProbeWeights[512] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
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
    unroll<kSums>(FUCINA_EACH(i) { V::template dot<i / 2>(sum[i], i % 2 ? b : a, x); });
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
      V::template dot<m>(sum, a, x);
      V::template dot<m + 4>(sum, b, x);
      acc[m] = V::add(acc[m], V::settle(sum, scale));
    });
  }
  unroll<kRows>(FUCINA_EACH(m) { keep(V::sum(acc[m])); });
  return static_cast<double>(rounds) * kRows * 2 * V::kVectorBytes;
}

// The same two with lanes that multiply eights of two rows at a time (kernels/quants.h).
template <class V, class Quants, int kPairs>
double probe_eights(long rounds) {
  const auto a = Quants::template group<V, 0>(anew(kProbeWeights)),
             b = Quants::template group<V, 1>(anew(kProbeWeights));
  typename V::PairSum sum[kPairs];
  unroll<kPairs>(FUCINA_EACH(p) { sum[p] = V::start_pair(); });
  for (long r = 0; r < rounds; r++) {
    const std::int8_t* x = anew(kProbeRows);
    unroll<kPairs>(FUCINA_EACH(p) { V::dot_eights(sum[p], a, b, V::template two_rows<2 * p, 2 * p + 8, true>(x)); });
  }
  unroll<kPairs>(FUCINA_EACH(p) { keep(V::sum(V::add(V::first_row(sum[p]), V::second_row(sum[p])))); });
  return static_cast<double>(rounds) * kPairs * 4 * V::kVectorBytes;
}

template <class V>
double probe_scaled_eights(long rounds) {
  const auto a = SixBits::group<V, 0>(anew(kProbeWeights)), b = SixBits::group<V, 1>(anew(kProbeWeights));
  const auto scale = V::load_scales(anew(kProbeWeights));
  typename V::I32 acc[4];
  unroll<4>(FUCINA_EACH(m) { acc[m] = V::zero_i32(); });
  for (long r = 0; r < rounds; r++) {
    const std::int8_t* x = anew(kProbeRows);
    unroll<2>(FUCINA_EACH(p) {
      auto sum = V::start_pair();
      V::dot_eights(sum, a, b, V::template two_rows<2 * p, 2 * p + 4, true>(x));
      V::dot_eights(sum, a, b, V::template two_rows<2 * p + 8, 2 * p + 12, true>(x));
      acc[2 * p] = V::add(acc[2 * p], V::settle(V::first_row(sum), scale));
      acc[2 * p + 1] = V::add(acc[2 * p + 1], V::settle(V::second_row(sum), scale));
    });
  }
  unroll<4>(FUCINA_EACH(m) { keep(V::sum(acc[m])); });
  return static_cast<double>(rounds) * 2 * 2 * 4 * V::kVectorBytes;
}

template <class V>
double multiply_adds(Mix mix, long rounds) {
  if constexpr (takes_eights<V>) {
    if (mix == Mix::Nibbles) return probe_eights<V, FourBits, 4>(rounds);
    if (mix == Mix::Bytes) return probe_eights<V, Bytes, 4>(rounds);
    if (mix == Mix::Scaled) return probe_scaled_eights<V>(rounds);
  }
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
