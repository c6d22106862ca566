#include "pick/pick.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>

#include "pick/exp.h"

namespace fucina::pick {

namespace {

using Float4 = float __attribute__((vector_size(16)));
using Mask4 = std::int32_t __attribute__((vector_size(16)));
using Float2 = float __attribute__((vector_size(8)));

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Float4 load4(const float* from) {
  Float4 value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

bool any(Mask4 mask) {
  std::uint64_t halves[2];
  std::memcpy(halves, &mask, sizeof halves);
  return (halves[0] | halves[1]) != 0;
}

// Copies the last, partial block of a row and fills it up with -inf, which no scan takes for a token.
struct Tail {
  float block[kLanes];
  Tail(const float* from, std::size_t count) {
    std::fill(std::copy(from, from + count, block), block + kLanes, -kInfinity);
  }
};

// Calls visit(pointer to 16 logits, id of the first) over the whole row.
template <class Visit>
void for_blocks(const float* row, std::size_t vocab, Visit visit) {
  std::size_t first = 0;
  for (; first + kLanes <= vocab; first += kLanes) visit(row + first, first);
  if (first < vocab) {
    const Tail tail(row + first, vocab - first);
    visit(static_cast<const float*>(tail.block), first);
  }
}

// Calls visit for the blocks of a row, with -inf where a token is not allowed, and skip where a block has no other.
template <class Visit, class Skip>
void for_allowed_blocks(const float* row, std::size_t vocab, Bitmask allowed, Visit visit, Skip skip) {
  for_blocks(row, vocab, [&](const float* block, std::size_t first) {
    const std::uint32_t word = first / 32 < allowed.n_words ? allowed.words[first / 32] : 0;
    const std::uint32_t bits = word >> first % 32 & 0xffffu;
    if (bits == 0xffffu) return visit(block, first);
    if (bits == 0) return skip();
    constexpr Mask4 kBits = {1, 2, 4, 8};
    constexpr std::int32_t kForbidden = std::bit_cast<std::int32_t>(-kInfinity);
    float masked[kLanes];
    for (std::size_t i = 0; i < kLanes; i += 4) {
      const Mask4 keep = (static_cast<std::int32_t>(bits >> i) & kBits) != 0;
      Mask4 logits;
      std::memcpy(&logits, block + i, sizeof logits);
      logits = (logits & keep) | (kForbidden & ~keep);
      std::memcpy(masked + i, &logits, sizeof logits);
    }
    visit(static_cast<const float*>(masked), first);
  });
}

// A processor's wider vectors, where it has them: comparisons give the same in any width.
#if defined(__x86_64__) && defined(__linux__)
#define FUCINA_ANY_WIDTH __attribute__((target_clones("avx2", "default")))
#else
#define FUCINA_ANY_WIDTH
#endif
using Float8 = float __attribute__((vector_size(32)));
using Mask8 = std::int32_t __attribute__((vector_size(32)));

// The greatest logit, and the first of the stretches of kStretch logits that holds it.
constexpr std::size_t kStretch = 4096;
struct Peak {
  float best;
  bool sound;  // neither NaN nor +inf
  std::size_t stretch;
};

// The greatest of whole blocks of kLanes logits; a NaN is passed over, and told of.
FUCINA_ANY_WIDTH float greatest(const float* blocks, std::size_t count, bool* nan) {
  const Float8 lowest = Float8{} - kInfinity;
  Float8 low = lowest, high = lowest;
  Mask8 odd = {};
  for (std::size_t i = 0; i < count; i += kLanes) {
    Float8 x, y;
    std::memcpy(&x, blocks + i, sizeof x);
    std::memcpy(&y, blocks + i + 8, sizeof y);
    low = x > low ? x : low;
    high = y > high ? y : high;
    odd |= (x != x) | (y != y);
  }
  float best = -kInfinity;
  int any_odd = 0;
  for (int i = 0; i < 8; ++i) {
    best = std::max(best, std::max(low[i], high[i]));
    any_odd |= odd[i];
  }
  *nan |= any_odd != 0;
  return best;
}

Peak peak(const float* row, std::size_t vocab) {
  Peak found{-kInfinity, true, 0};
  bool nan = false;
  const auto look = [&](const float* blocks, std::size_t count, std::size_t first) {
    const float best = greatest(blocks, count, &nan);
    if (best > found.best) found = {best, true, first};
  };
  const std::size_t whole = vocab / kLanes * kLanes;
  for (std::size_t first = 0; first < whole; first += kStretch)
    look(row + first, std::min(kStretch, whole - first), first);
  if (whole < vocab) look(Tail(row + whole, vocab - whole).block, kLanes, whole);
  found.sound = !nan && found.best < kInfinity;
  return found;
}

// A 64-bit key that sorts as (logit, -id): -0 and +0 are equal, as for floats.
std::uint64_t key_of(float logit, std::size_t id) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);
  const std::uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return std::uint64_t{ordered} << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}

std::size_t id_of(std::uint64_t key) { return 0xffffffffu - static_cast<std::uint32_t>(key); }

// Collects the k greatest logits above -inf from blocks of a row that come in ascending order.
class Best {
 public:
  Best(const float* row, std::size_t k) : row_(row), k_(k), room_(2 * k + 256) { keys_.reserve(room_ + kLanes); }

  // Takes a block whose logits are those of the row, or -inf.
  void look(const float* block, std::size_t first) {
    const Float4 limit{threshold_, threshold_, threshold_, threshold_};
    if (!any((load4(block) > limit) | (load4(block + 4) > limit) | (load4(block + 8) > limit) |
             (load4(block + 12) > limit)))
      return;
    for (std::size_t i = 0; i < kLanes; ++i)
      if (block[i] > threshold_) keys_.push_back(key_of(block[i], first + i));
    if (keys_.size() >= room_) keep_best();
  }

  void give(std::vector<std::int32_t>& ids, std::vector<float>& values) {
    if (keys_.size() > k_) keep_best();
    std::sort(keys_.begin(), keys_.end(), std::greater<>());
    for (const std::uint64_t key : keys_) {
      ids.push_back(static_cast<std::int32_t>(id_of(key)));
      values.push_back(row_[id_of(key)]);
    }
  }

 private:
  // Later ids lose ties, so only logits strictly above the k-th best so far can still enter.
  void keep_best() {
    const auto end = keys_.begin() + static_cast<std::ptrdiff_t>(k_);
    if (k_ > 0) {
      std::nth_element(keys_.begin(), end - 1, keys_.end(), std::greater<>());
      threshold_ = row_[id_of(end[-1])];
    }
    keys_.resize(k_);
  }

  const float* row_;
  std::size_t k_, room_;
  std::vector<std::uint64_t> keys_;
  float threshold_ = -kInfinity;
};

// Sums weights over 16 strided lanes.
class ExpLanes {
 public:
  ExpLanes(double best, double inverse_temperature) : best_(best), inverse_temperature_(inverse_temperature) {}

  void add(const float* block) {
    for (std::size_t i = 0; i < kLanes / 2; ++i) {
      Float2 pair;
      std::memcpy(&pair, block + 2 * i, sizeof pair);
      lanes_[i] += exp_lanes((__builtin_convertvector(pair, Double2) - best_) * inverse_temperature_);
    }
  }

  // Adds a block of -inf.
  void add_floor() {
    for (Double2& lane : lanes_) lane += floor_;
  }

  double sum() const {
    double sum = 0.0;
    for (const Double2& lane : lanes_) {
      sum += lane[0];
      sum += lane[1];
    }
    return sum;
  }

 private:
  double best_, inverse_temperature_;
  Double2 lanes_[kLanes / 2] = {};
  const Double2 floor_ = exp_lanes(Double2{kExpFloor, kExpFloor});
};

}  // namespace

std::ptrdiff_t argmax(const float* row, std::size_t vocab) {
  const Peak found = peak(row, vocab);
  if (!found.sound) return -1;
  return std::find(row + found.stretch, row + vocab, found.best) - row;
}

bool top_k(const float* row, std::size_t vocab, std::size_t k, std::vector<std::int32_t>& ids,
           std::vector<float>& values) {
  if (!peak(row, vocab).sound) return false;
  Best best(row, std::min(k, vocab));
  for_blocks(row, vocab, [&](const float* block, std::size_t first) { best.look(block, first); });
  best.give(ids, values);
  return true;
}

bool top_k_allowed(const float* row, std::size_t vocab, Bitmask allowed, std::size_t k, std::vector<std::int32_t>& ids,
                   std::vector<float>& values) {
  Best best(row, std::min(k, vocab));
  Mask4 sound = ~Mask4{};
  const auto look = [&](const float* block, std::size_t first) {
    const Float4 limit = Float4{} + kInfinity;
    sound &=
        (load4(block) < limit) & (load4(block + 4) < limit) & (load4(block + 8) < limit) & (load4(block + 12) < limit);
    best.look(block, first);
  };
  for_allowed_blocks(row, vocab, allowed, look, [] {});
  if (any(~sound)) return false;
  best.give(ids, values);
  return true;
}

double exp_sum(const float* row, std::size_t vocab, float best, double inverse_temperature) {
  ExpLanes lanes(best, inverse_temperature);
  for_blocks(row, vocab, [&](const float* block, std::size_t) { lanes.add(block); });
  return lanes.sum();
}

double exp_sum_allowed(const float* row, std::size_t vocab, Bitmask allowed, float best, double inverse_temperature) {
  ExpLanes lanes(best, inverse_temperature);
  for_allowed_blocks(
      row, vocab, allowed, [&](const float* block, std::size_t) { lanes.add(block); }, [&] { lanes.add_floor(); });
  return lanes.sum();
}

std::ptrdiff_t draw(const float* values, std::size_t count, const Narrowing& how) {
  std::vector<double> weights(count);
  double all = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = (static_cast<double>(values[i]) - static_cast<double>(values[0])) * how.inverse_temperature;
    weights[i] = x < kExpFloor ? 0.0 : exp_one(x);
    all += weights[i];
  }
  const double total = how.total < 0.0 ? all : how.total;
  const bool nucleus = how.top_p < 1.0;
  bool ended = how.complete;
  std::vector<double> cumulative;
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    if (weights[i] == 0.0 || (i > 0 && weights[i] < how.min_p)) {
      ended = true;
      break;
    }
    sum += weights[i];
    cumulative.push_back(sum);
    if (nucleus && sum >= how.top_p * total) {
      ended = true;
      break;
    }
  }
  if (!ended && (nucleus || how.min_p > 0.0)) return -1;
  const double point = how.uniform * (ended ? sum : total);
  const auto drawn = std::upper_bound(cumulative.begin(), cumulative.end(), point) - cumulative.begin();
  if (drawn < std::ssize(cumulative)) return drawn;
  return ended ? drawn - 1 : -1;
}

void penalize(float* row, std::size_t vocab, std::vector<std::int64_t> window, double repeat, double frequency,
              double presence) {
  std::sort(window.begin(), window.end());
  for (auto first = window.begin(); first != window.end();) {
    const auto next = std::upper_bound(first, window.end(), *first);
    if (*first >= 0 && static_cast<std::uint64_t>(*first) < vocab) {
      float& logit = row[*first];
      const double scaled = logit > 0.0f ? logit / repeat : logit * repeat;
      logit = static_cast<float>(scaled - (static_cast<double>(next - first) * frequency + presence));
    }
    first = next;
  }
}

FUCINA_ANY_WIDTH
void apply_bitmask(float* row, std::size_t vocab, Bitmask allowed) {
  constexpr Mask8 kBits = {1, 2, 4, 8, 16, 32, 64, 128};
  constexpr std::int32_t kForbidden = std::bit_cast<std::int32_t>(-kInfinity);
  const std::uint32_t* words = allowed.words;
  const std::size_t covered = std::min(vocab, allowed.n_words * 32);
  std::size_t first = 0;
  for (; first + 32 <= covered; first += 32) {
    const std::uint32_t word = words[first / 32];
    if (word == 0xffffffffu) continue;
    if (word == 0) {  // most of them are all or nothing
      std::fill(row + first, row + first + 32, -kInfinity);
      continue;
    }
    for (std::size_t i = 0; i < 32; i += 8) {
      const Mask8 allowed = ((static_cast<std::int32_t>(word >> i) & kBits) != 0);
      Mask8 logits;
      std::memcpy(&logits, row + first + i, sizeof logits);
      logits = (logits & allowed) | (kForbidden & ~allowed);
      std::memcpy(row + first + i, &logits, sizeof logits);
    }
  }
  for (; first < covered; ++first)
    if (!(words[first / 32] >> first % 32 & 1u)) row[first] = -kInfinity;
  std::fill(row + covered, row + vocab, -kInfinity);
}

}  // namespace fucina::pick
