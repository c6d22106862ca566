#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bindings.h"
#include "draft/suffix_automaton.h"

namespace nb = nanobind;

namespace fucina::bindings {

namespace {

using draft::Match;
using draft::SuffixAutomaton;
using draft::Taken;

// Python integers as tokens; nothing if one is not a 32-bit number. Throws the TypeError of what is no integer.
std::optional<std::vector<std::uint32_t>> to_tokens(const nb::sequence& items) {
  std::vector<std::uint32_t> tokens;
  tokens.reserve(nb::len(items));
  bool in_range = true;
  for (nb::handle item : items) {
    const nb::object index = nb::steal(PyNumber_Index(item.ptr()));
    if (!index.is_valid()) throw nb::python_error();
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    in_range = in_range && overflow == 0 && value >= 0 && value <= UINT32_MAX;
    tokens.push_back(static_cast<std::uint32_t>(value));
  }
  if (!in_range) return std::nullopt;
  return tokens;
}

nb::list to_list(std::span<const std::uint32_t> tokens) {
  nb::list list;
  for (const std::uint32_t token : tokens) list.append(token);
  return list;
}

Taken append(SuffixAutomaton& automaton, const nb::sequence& items) {
  if (automaton.degraded()) return Taken::degraded;
  if (automaton.frozen()) return Taken::frozen;
  const auto tokens = to_tokens(items);
  if (tokens) return automaton.append(*tokens);
  automaton.poison();
  return Taken::token_out_of_range;
}

// Walks over the stream of a frozen automaton.
class Cursor {
 public:
  explicit Cursor(const SuffixAutomaton& automaton) : automaton_(automaton) {}

  void advance(const nb::sequence& items) {
    for (nb::handle item : items) {
      std::uint32_t token = 0;
      match_ = nb::try_cast(item, token) ? automaton_.advanced(match_, token) : Match{};
    }
  }
  std::uint32_t match_length() const { return match_.length; }
  nb::list draft(std::size_t max_tokens) const { return to_list(automaton_.draft(match_, max_tokens)); }

 private:
  const SuffixAutomaton& automaton_;
  Match match_;
};

}  // namespace

void bind_draft(nb::module_& m) {
  nb::class_<Cursor>(m, "AutomatonCursor")
      .def("advance", &Cursor::advance, nb::arg("tokens"))
      .def("draft", &Cursor::draft, nb::arg("max_tokens"))
      .def_prop_ro("match_length", &Cursor::match_length);
  nb::class_<SuffixAutomaton>(m, "Automaton", "See AutomatonCore in fucina.decoding.speculation.suffix_automaton.")
      .def(nb::init<std::size_t>(), nb::arg("max_tokens"))
      .def(
          "append",
          [](SuffixAutomaton& automaton, const nb::sequence& tokens) {
            return static_cast<int>(append(automaton, tokens));
          },
          nb::arg("tokens"))
      .def(
          "draft",
          [](const SuffixAutomaton& automaton, std::size_t max_tokens) {
            return to_list(automaton.draft(automaton.match(), max_tokens));
          },
          nb::arg("max_tokens"))
      .def("freeze", &SuffixAutomaton::freeze)
      .def(
          "cursor", [](const SuffixAutomaton& automaton) { return Cursor(automaton); }, nb::keep_alive<0, 1>())
      .def_prop_ro("match_length", [](const SuffixAutomaton& automaton) { return automaton.match().length; })
      .def_prop_ro("last_token",
                   [](const SuffixAutomaton& automaton) -> nb::object {
                     const auto tokens = automaton.tokens();
                     if (tokens.empty()) return nb::none();
                     return nb::int_(tokens.back());
                   })
      .def_prop_ro("n_tokens", [](const SuffixAutomaton& automaton) { return automaton.tokens().size(); })
      .def_prop_ro("n_states", &SuffixAutomaton::n_states)
      .def_prop_ro("n_transitions", &SuffixAutomaton::n_transitions)
      .def_prop_ro("n_bytes", &SuffixAutomaton::n_bytes)
      .def_prop_ro("is_degraded", &SuffixAutomaton::degraded);
}

}  // namespace fucina::bindings
