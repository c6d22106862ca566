// Large zeroed buffers straight from the kernel: committed page by page when first touched, huge pages where they help.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fucina {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t n_bytes);  // throws std::bad_alloc
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

}  // namespace fucina
