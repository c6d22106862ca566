// Large zeroed buffers straight from the kernel: committed page by page when first touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fucina {

// Huge pages make decoding faster, by 2 to 13 %. But a system may be slow to hand them out: a virtual machine that
// gives free memory back to its host got 0.25 GB/s of them, and 1.2 to 3 GB/s of small ones.
enum class Pages { Huge, Small };

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t n_bytes, Pages pages = Pages::Huge);  // throws std::bad_alloc
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// Memory that is given out piece by piece and given back all at once. Many small pieces share huge pages, so that a
// stream over all of them leaves room in the processor's table of pages for whatever else runs.
class Arena {
 public:
  explicit Arena(Pages pages = Pages::Huge) : pages_(pages) {}

  // Zeroed, at a multiple of a cache line. Throws std::bad_alloc.
  std::uint8_t* take(std::size_t n_bytes);

 private:
  const Pages pages_;
  std::vector<Buffer> chunks_;
  std::size_t used_ = 0;  // of the last chunk
};

}  // namespace fucina
