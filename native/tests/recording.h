// Cases with recorded results: hashes, reproducible inputs, and the file that holds them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iomanip>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tiers/tiers.h"

namespace fucina {

// FNV-1a over bytes, 64 bits.
class Hash {
 public:
  template <class T>
  void add(const std::vector<T>& values) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
    for (std::size_t i = 0; i < values.size() * sizeof(T); i++) state_ = (state_ ^ bytes[i]) * 0x100000001b3u;
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

// Random bits as a function of (seed, count): SplitMix64 (Steele, Lea and Flood, 2014). Draw once in an expression: the
// order of evaluation is the compiler's choice.
class Random {
 public:
  explicit Random(const std::string& seed) {
    for (const char c : seed) state_ = (state_ ^ static_cast<std::uint8_t>(c)) * 0x100000001b3u;
  }
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>((bits() >> 33) % static_cast<std::uint64_t>(n)); }
  // A multiple of 2^-20 in [-1, 1).
  float unit() { return static_cast<float>(below(1 << 21) - (1 << 20)) * 0x1p-20f; }
  // Of many magnitudes; one in sixteen is zero.
  float spread() {
    if (below(16) == 0) return 0.0f;
    const int magnitude = below(8);
    return unit() * static_cast<float>(1 << magnitude) * 0.125f;
  }
  // A finite 16-bit float of modest size, one in eight of them subnormal.
  std::uint16_t half() {
    const int exponent = below(8) == 0 ? 0 : 6 + below(10);
    const int sign = below(2), mantissa = below(1024);
    return static_cast<std::uint16_t>(sign << 15 | exponent << 10 | mantissa);
  }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

inline std::vector<float> floats(Random& random, std::size_t n) {
  std::vector<float> values(n);
  for (float& v : values) v = random.spread();
  return values;
}

// The cases of a file, or those being recorded.
class Cases {
 public:
  explicit Cases(bool recording) : recording_(recording) {
    for (const Tier& tier : all_tiers()) {
      if (tier.runs_here) tiers_.push_back(tier.kernels);
    }
  }

  void read(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string name;
      Expected e;
      if (line.starts_with('#')) continue;
      if (words >> name >> std::hex >> e.inputs >> e.outputs) expected_[name] = e;
    }
  }

  void write(const std::string& path) const {
    std::ofstream file(path);
    file << "# Results of the scalar tier: case, hash of inputs, hash of outputs. Made by native/tests/kernels.cpp: "
            "fucina_kernels --record tests/golden/kernels.txt\n";
    for (const auto& line : lines_) file << line << "\n";
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      std::exit(2);
    }
  }

  // `compute` runs one case with a tier and hashes all it wrote.
  void add(const std::string& name, const Hash& inputs, const std::function<Hash(const Kernels&)>& compute) {
    if (recording_) {
      std::ostringstream line;
      line << name << std::hex << std::setfill('0') << ' ' << std::setw(16) << inputs.value() << ' ' << std::setw(16)
           << compute(scalar_kernels()).value();
      lines_.push_back(line.str());
      return;
    }
    const auto found = expected_.find(name);
    if (found == expected_.end()) return fail(name, "is not in the recording");
    if (found->second.inputs != inputs.value()) fail(name, "has other inputs here");
    for (const Kernels* kernels : tiers_) {
      if (compute(*kernels).value() != found->second.outputs)
        fail(name, std::string("differs in tier ") + kernels->name);
    }
    expected_.erase(found);
    compared_++;
  }

  // Prints the summary; the program's exit status.
  int finish() {
    for (const auto& [name, unused] : expected_) fail(name, "is in the recording, but no longer a case");
    std::printf("%d cases, %d failures; tiers:", recording_ ? static_cast<int>(lines_.size()) : compared_, failures_);
    for (const Kernels* kernels : tiers_) std::printf(" %s", kernels->name);
    std::printf("\n");
    return failures_ > 0 ? 1 : 0;
  }

 private:
  struct Expected {
    std::uint64_t inputs = 0, outputs = 0;
  };
  void fail(const std::string& name, const std::string& what) {
    std::printf("FAILED %s %s\n", name.c_str(), what.c_str());
    failures_++;
  }

  bool recording_;
  std::vector<const Kernels*> tiers_;
  std::map<std::string, Expected> expected_;
  std::vector<std::string> lines_;
  int compared_ = 0, failures_ = 0;
};

// Adds the cases of store_kv, attend and gather (attention.cpp).
void add_attention(Cases& cases);

}  // namespace fucina
