#include "draft/suffix_automaton.h"

#include <algorithm>

namespace fucina::draft {

namespace {

constexpr std::uint32_t kRoot = 0;

}  // namespace

SuffixAutomaton::SuffixAutomaton(std::size_t max_tokens, Reallocate reallocate)
    : max_tokens_(std::min(max_tokens, kMostTokens)),
      tokens_(reallocate),
      states_(reallocate),
      transitions_(reallocate) {
  states_.push({kRoot, 0, 0, 0});
}

Taken SuffixAutomaton::append(std::span<const std::uint32_t> tokens) {
  if (degraded_) return Taken::degraded;
  if (frozen_) return Taken::frozen;
  if (tokens.size() > max_tokens_ - tokens_.size()) {
    poison();
    return Taken::stream_too_long;
  }
  try {
    for (std::size_t i = 0; i < tokens.size(); i++) {
      // the next state's number is known, and so is where its first transition will lie
      if (i + 1 < tokens.size()) {
        transitions_.prefetch(static_cast<std::uint32_t>(states_.size()), tokens[i + 1]);
        transitions_.prefetch(kRoot, tokens[i + 1]);
      }
      extend(tokens[i]);
    }
  } catch (const std::bad_alloc&) {
    poison();
    return Taken::no_memory;
  }
  return Taken::yes;
}

void SuffixAutomaton::poison() {
  degraded_ = true;
  tokens_.release();
  states_.release();
  transitions_.release();
  last_ = kRoot;
}

// A walker that takes each token before the automaton learns it, so that it cannot match itself, ends where the link of
// the new last state leads: it, too, leaves the old last state's link for the first state of the chain that knows the
// token, and where that state is split for being longer, it belongs to the shorter half. So the link is the walker.
Match SuffixAutomaton::match() const {
  if (tokens_.size() == 0) return {};
  const std::uint32_t state = states_[last_].link;
  return {state, states_[state].len};
}

std::span<const std::uint32_t> SuffixAutomaton::draft(Match match, std::size_t max_tokens) const {
  if (match.length == 0) return {};
  const std::size_t begin = states_[match.state].sample + std::size_t{1};
  return {tokens_.data() + begin, std::min(max_tokens, tokens_.size() - begin)};
}

Match SuffixAutomaton::advanced(Match match, std::uint32_t token) const {
  for (;;) {
    const std::uint32_t target = transitions_.target(match.state, token);
    if (target != kRoot) return {target, match.length + 1};
    if (match.state == kRoot) return {};
    match.state = states_[match.state].link;
    match.length = states_[match.state].len;
  }
}

void SuffixAutomaton::extend(std::uint32_t token) {
  const std::uint32_t end = tokens_.push(token);
  const std::uint32_t before = last_;
  const std::uint32_t matched = states_[before].link;
  transitions_.prefetch(matched, token);
  if (matched != kRoot) states_[matched].sample = end - 1;
  const std::uint32_t created = states_.push({kRoot, end + 1, end, 0});
  last_ = created;

  // Every suffix that was never followed by the token is now.
  for (std::uint32_t state = before;;) {
    State& from = states_[state];
    transitions_.prefetch(from.link, token);
    Transition& slot = transitions_.claim(state, token);
    if (slot.target != kRoot) {
      const std::uint32_t target = slot.target;
      const bool fits = states_[target].len == from.len + 1;
      const std::uint32_t link = fits ? target : split(target, state, token, end);
      states_[created].link = link;
      return;
    }
    transitions_.fill(slot, {state, token, created, state == before ? token : from.first_token});
    from.first_token = token;
    if (state == kRoot) return;
    from.sample = end - 1;
    state = from.link;
  }
}

// Take out of a state the strings no longer than the parent's and the token: they occur at the end, too, and it does
// not.
std::uint32_t SuffixAutomaton::split(std::uint32_t state, std::uint32_t parent, std::uint32_t token,
                                     std::uint32_t end) {
  const State whole = states_[state];
  const std::uint32_t half = states_.push({whole.link, states_[parent].len + 1, whole.sample, whole.first_token});
  for (std::uint32_t follows = whole.first_token;;) {
    transitions_.prefetch(half, follows);
    Transition copy = transitions_.at(state, follows);
    copy.state = half;
    transitions_.fill(transitions_.claim(half, follows), copy);
    if (copy.next_token == follows) break;
    follows = copy.next_token;
  }
  states_[state].link = half;
  for (;;) {
    State& from = states_[parent];
    transitions_.prefetch(from.link, token);
    Transition& slot = transitions_.at(parent, token);
    if (slot.target != state) return half;
    slot.target = half;
    if (parent == kRoot) return half;
    from.sample = end - 1;
    parent = from.link;
  }
}

}  // namespace fucina::draft
