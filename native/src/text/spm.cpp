#include "text/spm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <queue>
#include <stdexcept>
#include <utility>

namespace fucina::text {

namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581, how a piece writes a space

std::uint64_t hash_of(std::string_view bytes) {
  constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15ull;
  std::uint64_t hash = bytes.size() * kMix;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * kMix;
    hash ^= hash >> 32;
  }
  std::uint64_t tail = 0;
  std::memcpy(&tail, at, left);
  hash = (hash ^ tail) * kMix;
  return hash ^ (hash >> 29);
}

// The length of the UTF-8 character at the front, 1 where it is malformed.
std::size_t character_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  if (length > text.size()) return 1;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 1;
  }
  return length;
}

std::string with_plain_spaces(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    const bool mark = piece.substr(0, kSpaceMark.size()) == kSpaceMark;
    out += mark ? ' ' : piece[0];
    piece.remove_prefix(mark ? kSpaceMark.size() : 1);
  }
  return out;
}

// The byte that a piece of the form <0x41> stands for, or -1.
int byte_of(std::string_view piece) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  const std::size_t high = kDigits.find(piece[3]);
  const std::size_t low = kDigits.find(piece[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return -1;
  return static_cast<int>(high * 16 + low);
}

bool made_from_text(PieceType type) {
  return type == PieceType::undefined || type == PieceType::normal || type == PieceType::user_defined ||
         type == PieceType::unused;
}

}  // namespace

void PrefixTrie::insert(std::string_view word, std::int32_t id) {
  std::uint32_t node = 0;
  for (const unsigned char byte : word) {
    const auto [edge, fresh] = edges_.try_emplace(std::uint64_t{node} << 8 | byte, ids_.size());
    if (fresh) ids_.push_back(-1);
    node = edge->second;
  }
  if (node != 0) ids_[node] = id;
}

std::pair<std::size_t, std::int32_t> PrefixTrie::longest(std::string_view text) const {
  std::pair<std::size_t, std::int32_t> best{0, -1};
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto edge = edges_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (ids_[node] >= 0) best = {i + 1, ids_[node]};
  }
  return best;
}

PieceTable::PieceTable(std::string storage, std::vector<std::int64_t> starts, std::vector<std::int64_t> ends)
    : storage_(std::move(storage)), starts_(std::move(starts)), ends_(std::move(ends)) {
  if (starts_.size() != ends_.size()) throw std::invalid_argument("every piece needs a start and an end");
  if (ends_.size() > std::numeric_limits<std::int32_t>::max()) throw std::invalid_argument("too many pieces");
  const auto size = static_cast<std::int64_t>(storage_.size());
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    if (starts_[i] < 0 || starts_[i] > ends_[i] || ends_[i] > size) {
      throw std::invalid_argument("a piece lies outside the storage");
    }
  }
  std::size_t capacity = 16;
  while (capacity < 2 * ends_.size()) capacity *= 2;
  slots_.resize(capacity);
  mask_ = capacity - 1;
}

std::string_view PieceTable::piece(std::int32_t id) const {
  return std::string_view(storage_).substr(starts_[id], ends_[id] - starts_[id]);
}

std::size_t PieceTable::probe(std::string_view wanted, std::uint64_t hash) const {
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  std::size_t at = hash & mask_;
  while (slots_[at].id >= 0 && (slots_[at].tag != tag || piece(slots_[at].id) != wanted)) at = (at + 1) & mask_;
  return at;
}

void PieceTable::insert(std::int32_t id) {
  const std::uint64_t hash = hash_of(piece(id));
  slots_[probe(piece(id), hash)] = {static_cast<std::uint32_t>(hash >> 32), id};
}

std::int32_t PieceTable::find(std::string_view wanted) const { return slots_[probe(wanted, hash_of(wanted))].id; }

struct SpmEncoder::Symbol {
  std::int32_t previous;
  std::int32_t next;
  std::uint32_t begin;   // in Work::text
  std::uint32_t length;  // 0 once merged away
  std::int32_t id;       // -1: not looked up yet
  bool frozen;           // a user-defined piece never merges
};

struct SpmEncoder::Pair {
  float score;
  std::int32_t left;
  std::int32_t right;
  std::uint32_t length;  // of both together; differs from the symbols' once the pair is stale
  std::int32_t id;

  bool operator<(const Pair& other) const { return score < other.score || (score == other.score && left > other.left); }
};

struct SpmEncoder::Work {
  std::string text;  // spaces written as U+2581
  std::vector<Symbol> symbols;
  std::priority_queue<Pair> queue;
  // How an unused piece came about: such a piece may appear on the way, but not in the result.
  std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> halves;

  std::string_view piece(const Symbol& symbol) const {
    return std::string_view(text).substr(symbol.begin, symbol.length);
  }
};

SpmEncoder::SpmEncoder(std::string storage, std::vector<std::int64_t> starts, std::vector<std::int64_t> ends,
                       std::vector<float> scores, std::vector<std::uint8_t> types, std::int32_t unknown)
    : table_(std::move(storage), std::move(starts), std::move(ends)),
      scores_(std::move(scores)),
      types_(std::move(types)),
      unknown_(unknown) {
  const auto count = static_cast<std::int32_t>(table_.size());
  if (scores_.size() != table_.size() || types_.size() != table_.size()) {
    throw std::invalid_argument("every piece needs one score and one type");
  }
  if (unknown < -1 || unknown >= count) throw std::invalid_argument("the unknown id is outside the vocabulary");
  std::fill(std::begin(bytes_), std::end(bytes_), -1);
  for (std::int32_t id = 0; id < count; ++id) {
    if (std::isnan(scores_[id])) throw std::invalid_argument("a score is not a number");
    const std::string_view piece = table_.piece(id);
    const auto type = static_cast<PieceType>(types_[id]);
    if (type == PieceType::byte) {
      const int byte = byte_of(piece);
      if (byte < 0) throw std::invalid_argument("a byte piece must read <0x00> to <0xFF>");
      bytes_[byte] = id;
    } else if (made_from_text(type) && !piece.empty()) {
      table_.insert(id);
      if (type == PieceType::user_defined) user_defined_.insert(with_plain_spaces(piece), id);
    }
  }
}

std::vector<std::int32_t> SpmEncoder::encode(std::string_view text) const {
  if (text.size() > std::numeric_limits<std::int32_t>::max() / 4) throw std::invalid_argument("text too long");
  Work work;
  split(text, work);
  merge(work);
  std::vector<std::int32_t> ids;
  for (const Symbol& symbol : work.symbols) {
    if (symbol.length == 0) continue;
    const std::string_view piece = work.piece(symbol);
    emit(piece, symbol.id >= 0 ? symbol.id : table_.find(piece), work, ids);
  }
  return ids;
}

void SpmEncoder::split(std::string_view text, Work& work) const {
  work.text.reserve(text.size() + text.size() / 2);
  while (!text.empty()) {
    const auto [matched, id] = user_defined_.longest(text);
    const std::size_t taken = matched > 0 ? matched : character_length(text);
    const auto begin = static_cast<std::uint32_t>(work.text.size());
    if (matched == 0 && text[0] == ' ') {
      work.text += kSpaceMark;
    } else {
      work.text += text.substr(0, taken);
    }
    const auto at = static_cast<std::int32_t>(work.symbols.size());
    const auto length = static_cast<std::uint32_t>(work.text.size()) - begin;
    work.symbols.push_back({at - 1, at + 1, begin, length, id, matched > 0});
    text.remove_prefix(taken);
  }
  if (!work.symbols.empty()) work.symbols.back().next = -1;
}

void SpmEncoder::propose(std::int32_t left, std::int32_t right, Work& work) const {
  if (left < 0 || right < 0) return;
  const Symbol& a = work.symbols[left];
  const Symbol& b = work.symbols[right];
  if (a.frozen || b.frozen) return;
  const std::uint32_t length = a.length + b.length;
  const std::string_view piece = std::string_view(work.text).substr(a.begin, length);
  const std::int32_t id = table_.find(piece);
  if (id < 0) return;
  work.queue.push({scores_[id], left, right, length, id});
  if (static_cast<PieceType>(types_[id]) == PieceType::unused) {
    work.halves[piece] = {work.piece(a), work.piece(b)};
  }
}

void SpmEncoder::merge(Work& work) const {
  for (std::size_t i = 1; i < work.symbols.size(); ++i) {
    propose(static_cast<std::int32_t>(i) - 1, static_cast<std::int32_t>(i), work);
  }
  while (!work.queue.empty()) {
    const Pair pair = work.queue.top();
    work.queue.pop();
    Symbol& left = work.symbols[pair.left];
    Symbol& right = work.symbols[pair.right];
    if (left.length == 0 || right.length == 0 || left.length + right.length != pair.length) continue;
    left.length = pair.length;
    left.id = pair.id;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) work.symbols[left.next].previous = pair.left;
    propose(left.previous, pair.left, work);
    propose(pair.left, left.next, work);
  }
}

void SpmEncoder::emit(std::string_view piece, std::int32_t id, const Work& work, std::vector<std::int32_t>& out) const {
  std::vector<std::string_view> parts{piece};  // a stack, since a hostile vocabulary could nest without bound
  for (bool first = true; !parts.empty(); first = false) {
    const std::string_view part = parts.back();
    parts.pop_back();
    const std::int32_t found = first ? id : table_.find(part);
    if (found >= 0 && static_cast<PieceType>(types_[found]) != PieceType::unused) {
      out.push_back(found);
      continue;
    }
    if (const auto halves = work.halves.find(part); found >= 0 && halves != work.halves.end()) {
      parts.push_back(halves->second.second);
      parts.push_back(halves->second.first);
      continue;
    }
    const bool covered = std::all_of(part.begin(), part.end(), [this](unsigned char b) { return bytes_[b] >= 0; });
    if (covered) {
      for (const unsigned char byte : part) out.push_back(bytes_[byte]);
    } else if (unknown_ >= 0) {
      out.push_back(unknown_);
    }
  }
}

}  // namespace fucina::text
