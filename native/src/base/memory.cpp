#include "base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

namespace fucina {

Buffer::Buffer(std::size_t n_bytes, Pages pages) : size_(n_bytes) {
  if (n_bytes == 0) return;
  void* memory = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  constexpr std::size_t kHugeFrom = std::size_t{1} << 21;
  // advice: failing is harmless
  if (n_bytes >= kHugeFrom) madvise(memory, n_bytes, pages == Pages::Huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif
  data_ = static_cast<std::uint8_t*>(memory);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (data_) munmap(data_, size_);
}

std::uint8_t* Arena::take(std::size_t n_bytes) {
  constexpr std::size_t kChunk = std::size_t{1} << 26, kLine = 64;
  if (chunks_.empty() || chunks_.back().size() - used_ < n_bytes) {
    chunks_.emplace_back(std::max(kChunk, n_bytes), pages_);
    used_ = 0;
  }
  std::uint8_t* const taken = chunks_.back().data() + used_;
  used_ = std::min((used_ + n_bytes + kLine - 1) / kLine * kLine, chunks_.back().size());
  return taken;
}

}  // namespace fucina
