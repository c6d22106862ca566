// The suffix automaton where memory is refused, and against a search through the stream. Prints what failed; exit
// status 1 if anything did.
#include <cstdio>
#include <random>
#include <vector>

#include "draft/suffix_automaton.h"

using fucina::draft::Match;
using fucina::draft::SuffixAutomaton;
using fucina::draft::Taken;

namespace {

int failures = 0;

void check(bool holds, const char* what, std::size_t where) {
  if (!holds && failures++ < 20) std::printf("FAILED %s at %zu\n", what, where);
}

std::size_t requests_left = 0;

void* limited(void* memory, std::size_t n_bytes) {
  return requests_left == 0 ? nullptr : (requests_left--, std::realloc(memory, n_bytes));
}

std::vector<std::uint32_t> stream(std::size_t n_tokens, std::uint32_t alphabet) {
  std::mt19937_64 random(alphabet);
  std::vector<std::uint32_t> tokens(n_tokens);
  for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(random()) % alphabet * 0x55555555u;
  return tokens;
}

// Length of the longest suffix of the first `end` tokens that ends earlier, too.
std::uint32_t longest_match(const std::vector<std::uint32_t>& tokens, std::size_t end) {
  std::size_t longest = 0;
  for (std::size_t earlier = 1; earlier < end; earlier++) {
    std::size_t length = 0;
    while (length < earlier && tokens[earlier - 1 - length] == tokens[end - 1 - length]) length++;
    if (length > longest) longest = length;
  }
  return static_cast<std::uint32_t>(longest);
}

void test_matches() {
  for (const std::uint32_t alphabet : {1u, 2u, 3u}) {
    const auto tokens = stream(400, alphabet);
    SuffixAutomaton automaton;
    for (std::size_t i = 0; i < tokens.size(); i++) {
      check(automaton.append({&tokens[i], 1}) == Taken::yes, "an append", i);
      const Match match = automaton.match();
      check(match.length == longest_match(tokens, i + 1), "the match", i);
      const auto draft = automaton.draft(match, tokens.size());
      check(draft.empty() == (match.length == 0), "a draft for every match", i);
      const std::size_t begin = i + 1 - draft.size();
      for (std::size_t k = 0; !draft.empty() && k < match.length; k++) {
        check(tokens[begin - 1 - k] == tokens[i - k], "what precedes the draft", i);
      }
    }
  }
}

// However many requests for memory are granted, the next refusal poisons, and nothing is read or written outside.
void test_refused_memory() {
  const auto tokens = stream(3000, 2);
  for (std::size_t granted = 1;; granted++) {
    requests_left = granted;
    SuffixAutomaton automaton(tokens.size(), limited);
    Taken taken = Taken::yes;
    std::size_t n_taken = 0;
    while (n_taken < tokens.size() && taken == Taken::yes) taken = automaton.append({&tokens[n_taken++], 1});
    if (taken == Taken::yes) {
      check(granted > 10, "enough refusals", granted);
      return;
    }
    check(taken == Taken::no_memory && automaton.degraded(), "a refusal poisons", granted);
    check(automaton.n_bytes() == 0 && automaton.tokens().empty(), "a poisoned index is empty", granted);
    check(automaton.match().length == 0 && automaton.draft(automaton.match(), 8).empty(), "no match", granted);
    requests_left = 1000;
    check(automaton.append(tokens) == Taken::degraded, "a poisoned index takes nothing", granted);
  }
}

void test_limits() {
  const auto tokens = stream(100, 3);
  SuffixAutomaton automaton(99);
  check(automaton.append({tokens.data(), 99}) == Taken::yes, "a stream of the greatest length", 99);
  check(automaton.append({tokens.data(), 1}) == Taken::stream_too_long && automaton.degraded(), "one more", 100);
}

}  // namespace

int main() {
  test_matches();
  test_refused_memory();
  test_limits();
  std::printf("automaton: %d failures\n", failures);
  return failures != 0;
}
