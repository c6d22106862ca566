// The portable lanes against the C library and the processor: fma without the instruction, half floats, int8 rounding,
// and the thread team. Prints what failed; exit status 1 if anything did.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <random>

#include "simd/generic.h"
#include "tape/embed.h"
#include "threads/team.h"

namespace {

int failures = 0;

void check(bool holds, const char* what, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  if (holds) return;
  if (failures++ < 20) std::printf("FAILED %s: %08x %08x %08x\n", what, a, b, c);
}

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// Bit patterns that lie where rounding is hard: ties, subnormals, neighbors of powers of two, infinities.
std::uint32_t hard_pattern(std::mt19937_64& random) {
  const auto bits = static_cast<std::uint32_t>(random());
  switch (random() % 6) {
    case 0:
      return bits & 0x807fffffu;  // subnormal
    case 1:
      return (bits & 0xff800000u) | (bits & 3u);  // just above a power of two
    case 2:
      return (bits & 0xff800000u) | 0x007ffffcu | (bits & 3u);  // just below one
    case 3:
      return (bits & 0x80000000u) | (0x3f000000u + (bits & 0x00ffffffu));  // near one
    case 4:
      return (bits & 0xfffff000u);  // few mantissa bits: exact products and ties
    default:
      return bits;
  }
}

void test_fused() {
  std::mt19937_64 random(1);
  for (int i = 0; i < 4'000'000; i++) {
    const std::uint32_t a = hard_pattern(random), b = hard_pattern(random), c = hard_pattern(random);
    const float x = std::bit_cast<float>(a), y = std::bit_cast<float>(b), z = std::bit_cast<float>(c);
    check(same(fucina::fused(x, y, z), std::fma(x, y, z)), "fma", a, b, c);
    const float near = -std::fma(x, y, 0.0f) * (1.0f + std::ldexp(static_cast<float>(c % 64) - 32, -23));
    check(same(fucina::fused(x, y, near), std::fma(x, y, near)), "fma with cancellation", a, b, c);
  }
}

void test_halves() {
  for (std::uint32_t h = 0; h < 0x10000; h++) {
    const float wide = fucina::half_to_float(static_cast<std::uint16_t>(h));
    const int exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
    if (exponent == 31) {
      check(mantissa ? std::isnan(wide) : std::isinf(wide), "half to float", h, 0, 0);
      continue;
    }
    const float magnitude =
        exponent ? std::ldexp(1024.0f + mantissa, exponent - 25) : std::ldexp(static_cast<float>(mantissa), -24);
    check(same(wide, h & 0x8000 ? -magnitude : magnitude), "half to float", h, 0, 0);
    check(fucina::float_to_half(wide) == h, "float to half", h, 0, 0);
    // Halfway to the next half rounds to the even one; a hair to either side does not.
    const auto next = static_cast<std::uint16_t>(h + 1);
    if (((next >> 10) & 31) == 31) continue;
    const float middle = (wide + fucina::half_to_float(next)) / 2;
    check(fucina::float_to_half(middle) == (h % 2 ? next : h), "tie to half", h, 0, 0);
    check(fucina::float_to_half(std::nextafter(middle, wide)) == h, "below the tie", h, 0, 0);
    check(fucina::float_to_half(std::nextafter(middle, 2 * fucina::half_to_float(next) - wide)) == next,
          "above the tie", h, 0, 0);
  }
  check(fucina::float_to_half(65520.0f) == 0x7c00, "overflow to infinity", 0, 0, 0);
  check(fucina::float_to_half(65519.0f) == 0x7bff, "largest half", 0, 0, 0);
}

void test_sines() {
  std::mt19937_64 random(2);
  for (int i = 0; i < 1'000'000; i++) {
    const double x = std::ldexp(static_cast<double>(random() >> 11), -53) * 1.0e6;
    double sine, cosine;
    fucina::sine_cosine(x, &sine, &cosine);
    check(std::fabs(sine - std::sin(x)) < 1e-15 && std::fabs(cosine - std::cos(x)) < 1e-15, "sine and cosine", i, 0, 0);
  }
}

// Every piece exactly once, in its own share, however often helpers sleep, fall behind or change in number.
void test_team() {
  std::atomic<int> seen[64];
  for (int round = 0; round < 3000; round++) {
    const int threads = 1 + round % 4;
    fucina::Team::Job job(threads);
    for (int share = 0; share < 5; share++) {
      const int pieces = (round * 7 + share * 13) % 64;
      for (auto& count : seen) count = 0;
      std::atomic<int> firsts{0}, strangers{0};
      job.share(pieces, [&](fucina::Turn turn) {
        seen[turn.piece].fetch_add(1);
        firsts.fetch_add(turn.first);
        strangers.fetch_add(turn.thread >= threads);
        if (turn.piece % 16 == 3) sched_yield();
      });
      bool once = firsts <= threads && strangers == 0 && (firsts > 0 || pieces == 0);
      for (int i = 0; i < 64; i++) once &= seen[i] == (i < pieces);
      check(once, "team", static_cast<std::uint32_t>(round), static_cast<std::uint32_t>(share), 0);
    }
    if (round % 100 == 0) usleep(500);  // long enough for the helpers to fall asleep
  }
}

void test_team_after_fork() {
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> done{0};
    fucina::Team::Job(3).share(100, [&](fucina::Turn) { done.fetch_add(1); });
    _exit(done == 100 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  check(status == 0, "team after fork", static_cast<std::uint32_t>(status), 0, 0);
}

}  // namespace

int main() {
  test_fused();
  test_halves();
  test_sines();
  test_team();
  test_team_after_fork();
  std::printf("%d failures\n", failures);
  return failures ? 1 : 0;
}
