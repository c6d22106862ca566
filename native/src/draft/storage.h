// What an index of drafts keeps: growing arrays and a hash table of transitions, both of plain numbers.
// Memory is asked of a function, so that a test can refuse it. It grows in small steps: long streams waste little.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

namespace fucina::draft {

using Reallocate = void* (*)(void*, std::size_t);  // as std::realloc; what it gives is freed with std::free

inline constexpr std::size_t kFirstCapacity = 64;

// Ask for large pages where they help: a large table is read all over. Only advice: failing is harmless.
inline void advise_large_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t n_bytes) {
#ifdef MADV_HUGEPAGE
  constexpr std::uintptr_t page = 4096, large_from = std::uintptr_t{1} << 22;
  if (n_bytes < large_from) return;
  const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(memory) + page - 1) & ~(page - 1);
  const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(memory) + n_bytes) & ~(page - 1);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

// An array that grows where it lies, if the allocator can: no second copy of a large one.
template <class T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit Array(Reallocate reallocate) : reallocate_(reallocate) {}
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { std::free(items_); }

  // Throws std::bad_alloc.
  std::uint32_t push(const T& item) {
    if (size_ == capacity_) {
      const std::size_t capacity = capacity_ == 0 ? kFirstCapacity : capacity_ + capacity_ / 8;
      void* items = reallocate_(items_, capacity * sizeof(T));
      if (items == nullptr) throw std::bad_alloc();
      items_ = static_cast<T*>(items);
      capacity_ = capacity;
    }
    items_[size_] = item;
    return static_cast<std::uint32_t>(size_++);
  }

  void release() {
    std::free(items_);
    items_ = nullptr;
    size_ = capacity_ = 0;
  }

  T& operator[](std::size_t i) { return items_[i]; }
  const T& operator[](std::size_t i) const { return items_[i]; }
  const T* data() const { return items_; }
  std::size_t size() const { return size_; }
  std::size_t n_bytes() const { return capacity_ * sizeof(T); }

 private:
  Reallocate reallocate_;
  T* items_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

// One transition, and the token of the state's next one: its transitions are a list, which ends at the one whose next
// token is its own. Nothing leads to the root, state 0: a target of 0 marks an empty slot, and every token is a valid
// key.
struct Transition {
  std::uint32_t state, token, target, next_token;
};

// (state, token) -> target, by open addressing with linear probing. A key's place is its hash times the number of
// slots, so that keys keep their order when the table grows, and moving them all is one pass over both tables.
class Transitions {
 public:
  explicit Transitions(Reallocate reallocate) : reallocate_(reallocate) {}
  Transitions(const Transitions&) = delete;
  Transitions& operator=(const Transitions&) = delete;
  ~Transitions() { std::free(slots_); }

  // The target, or 0.
  std::uint32_t target(std::uint32_t state, std::uint32_t token) const {
    return n_slots_ == 0 ? 0 : at(state, token).target;
  }

  // The slot of the key. There must have been a transition.
  Transition& at(std::uint32_t state, std::uint32_t token) const { return slots_[place(state, token)]; }

  // The slot of the key, empty if the key is new: the caller fills it then. Throws std::bad_alloc.
  Transition& claim(std::uint32_t state, std::uint32_t token) {
    if (n_used_ >= most_used_) grow();
    return at(state, token);
  }

  void fill(Transition& empty, const Transition& transition) {
    empty = transition;
    n_used_++;
  }

  void prefetch(std::uint32_t state, std::uint32_t token) const {
    if (n_slots_ != 0) __builtin_prefetch(slots_ + home(state, token), 1);
  }

  void release() {
    std::free(slots_);
    slots_ = nullptr;
    n_slots_ = n_used_ = most_used_ = 0;
  }

  std::size_t size() const { return n_used_; }
  std::size_t n_bytes() const { return n_slots_ * sizeof(Transition); }

 private:
  std::size_t home(std::uint32_t state, std::uint32_t token) const {
    std::uint64_t hash = (std::uint64_t{state} << 32 | token) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93u;
    return (hash >> 32) * n_slots_ >> 32;
  }

  std::size_t place(std::uint32_t state, std::uint32_t token) const {
    std::size_t at = home(state, token);
    while (slots_[at].target != 0 && (slots_[at].state != state || slots_[at].token != token)) {
      if (++at == n_slots_) at = 0;
    }
    return at;
  }

  void grow() {
    const std::size_t n_slots = n_slots_ == 0 ? kFirstCapacity : n_slots_ + n_slots_ / 3;
    auto* slots = static_cast<Transition*>(reallocate_(nullptr, n_slots * sizeof(Transition)));
    if (slots == nullptr) throw std::bad_alloc();
    advise_large_pages(slots, n_slots * sizeof(Transition));
    std::memset(slots, 0, n_slots * sizeof(Transition));
    Transition* old = slots_;
    const std::size_t n_old = n_slots_;
    slots_ = slots;
    n_slots_ = n_slots;
    most_used_ = n_slots / 4 * 3;
    for (std::size_t i = 0; i < n_old; i++) {
      if (old[i].target != 0) slots_[place(old[i].state, old[i].token)] = old[i];
    }
    std::free(old);
  }

  Reallocate reallocate_;
  Transition* slots_ = nullptr;
  std::size_t n_slots_ = 0, n_used_ = 0, most_used_ = 0;
};

}  // namespace fucina::draft
