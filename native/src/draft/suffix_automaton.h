// An online suffix automaton over a stream of tokens: which is the longest suffix of the stream that has occurred
// before, and what followed it? (Blumer et al., 1985: The smallest automaton recognizing the subwords of a text.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "draft/storage.h"

namespace fucina::draft {

inline constexpr std::size_t kMostTokens = std::size_t{1}
                                           << 29;  // so that states and transitions are counted in 32 bits

// What became of an append. Every failure but `frozen` poisons: the index would lack a part of its stream.
enum class Taken : int {
  yes = 0,
  token_out_of_range = 1,
  stream_too_long = 2,
  no_memory = 3,
  degraded = 4,
  frozen = 5
};

// A matched suffix: the state that recognizes it, and its length.
struct Match {
  std::uint32_t state = 0, length = 0;
};

class SuffixAutomaton {
 public:
  // Throws std::bad_alloc.
  explicit SuffixAutomaton(std::size_t max_tokens = kMostTokens, Reallocate reallocate = std::realloc);

  Taken append(std::span<const std::uint32_t> tokens);
  // Give up for good: everything is released, every query answers "nothing".
  void poison();
  void freeze() { frozen_ = true; }

  // The longest suffix that also ends strictly before the last token; occurrences may overlap.
  Match match() const;
  // At most max_tokens tokens that followed the occurrence of a match that its state remembers.
  std::span<const std::uint32_t> draft(Match match, std::size_t max_tokens) const;
  // The longest suffix of (what matched, token) that occurs in this stream.
  Match advanced(Match match, std::uint32_t token) const;

  bool degraded() const { return degraded_; }
  bool frozen() const { return frozen_; }
  std::span<const std::uint32_t> tokens() const { return {tokens_.data(), tokens_.size()}; }
  std::size_t n_states() const { return states_.size(); }
  std::size_t n_transitions() const { return transitions_.size(); }
  std::size_t n_bytes() const { return tokens_.n_bytes() + states_.n_bytes() + transitions_.n_bytes(); }

 private:
  // len: of the longest string of the state. link: the state of its longest suffix that occurs elsewhere too. sample:
  // where one of its occurrences ends. first_token: of its first transition; the last state alone has none.
  struct State {
    std::uint32_t link, len, sample, first_token;
  };

  void extend(std::uint32_t token);
  std::uint32_t split(std::uint32_t state, std::uint32_t parent, std::uint32_t token, std::uint32_t end);

  std::size_t max_tokens_;
  bool degraded_ = false, frozen_ = false;
  std::uint32_t last_ = 0;  // the state of the whole stream
  Array<std::uint32_t> tokens_;
  Array<State> states_;
  Transitions transitions_;
};

}  // namespace fucina::draft
