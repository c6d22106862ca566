// SentencePiece's BPE over scores: the adjacent pair with the highest score merges first, the leftmost on ties.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fucina::text {

// What a piece is, with GGUF's numbers.
enum class PieceType : std::uint8_t { undefined, normal, unknown, control, user_defined, unused, byte };

// Finds the longest of a set of strings at a position of a text.
class PrefixTrie {
 public:
  void insert(std::string_view word, std::int32_t id);
  // The length of the longest word that starts `text` and its id; (0, -1) where there is none.
  std::pair<std::size_t, std::int32_t> longest(std::string_view text) const;

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;  // (node, byte) -> node; node 0 is the root
  std::vector<std::int32_t> ids_{-1};                       // per node: the word that ends there, or -1
};

// All pieces of a vocabulary, and an exact-match table over the ones that text may become.
class PieceTable {
 public:
  // Piece i lies in `storage` from starts[i] to ends[i]. Throws std::invalid_argument.
  PieceTable(std::string storage, std::vector<std::int64_t> starts, std::vector<std::int64_t> ends);
  PieceTable(const PieceTable&) = delete;
  PieceTable& operator=(const PieceTable&) = delete;

  std::size_t size() const { return ends_.size(); }
  std::string_view piece(std::int32_t id) const;
  void insert(std::int32_t id);                     // a later equal piece wins
  std::int32_t find(std::string_view piece) const;  // -1 where there is none

 private:
  struct Slot {
    std::uint32_t tag = 0;  // the hash's upper half: rules out nearly every wrong piece without touching its bytes
    std::int32_t id = -1;
  };
  std::size_t probe(std::string_view piece, std::uint64_t hash) const;

  std::string storage_;
  std::vector<std::int64_t> starts_;
  std::vector<std::int64_t> ends_;
  std::vector<Slot> slots_;
  std::size_t mask_;
};

// Text to ids for one vocabulary. Immutable once built, so any number of threads may encode at once.
class SpmEncoder {
 public:
  // Piece i lies in `storage` from starts[i] to ends[i]. Control and unknown pieces are never made from text.
  // `unknown` is the id for what no piece covers, or -1. Throws std::invalid_argument.
  SpmEncoder(std::string storage, std::vector<std::int64_t> starts, std::vector<std::int64_t> ends,
             std::vector<float> scores, std::vector<std::uint8_t> types, std::int32_t unknown);
  SpmEncoder(const SpmEncoder&) = delete;
  SpmEncoder& operator=(const SpmEncoder&) = delete;

  // The ids of UTF-8 `text`; spaces become U+2581, user-defined pieces match first, what is left falls back to bytes.
  std::vector<std::int32_t> encode(std::string_view text) const;

 private:
  struct Symbol;
  struct Pair;
  struct Work;

  void split(std::string_view text, Work& work) const;
  void propose(std::int32_t left, std::int32_t right, Work& work) const;
  void merge(Work& work) const;
  void emit(std::string_view piece, std::int32_t id, const Work& work, std::vector<std::int32_t>& out) const;

  PieceTable table_;
  std::vector<float> scores_;
  std::vector<std::uint8_t> types_;
  PrefixTrie user_defined_;
  std::int32_t bytes_[256];
  std::int32_t unknown_;
};

}  // namespace fucina::text
