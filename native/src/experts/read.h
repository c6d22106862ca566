// Positioned reads of a file's ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace fucina {

// Bytes that the memory, the place and the length of a direct read must be multiples of: enough for any disk.
constexpr std::size_t kReadGrain = 4096;

// A file that could not be read, or ended too early.
class ReadFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An open file. `direct`: it was opened past the page cache (O_DIRECT).
struct ReadFile {
  int descriptor;
  bool direct;
  std::string name;
};

// Room that `read_range` wants for a range of that many bytes.
constexpr std::size_t read_room(std::size_t n_bytes) {
  return (n_bytes + 2 * kReadGrain - 1) / kReadGrain * kReadGrain;
}

// Reads bytes [offset, offset + n_bytes) into `room` and returns where in it they begin. `room` begins at a multiple of
// kReadGrain and has read_room(n_bytes) bytes. Throws ReadFailed.
const std::uint8_t* read_range(const ReadFile& file, std::uint64_t offset, std::size_t n_bytes, std::uint8_t* room);

// Whether the page cache seems to have a range: a look at its ends. False where the system does not tell.
bool is_cached(const ReadFile& file, std::uint64_t offset, std::size_t n_bytes);

// Reads them straight to where they belong; the file must not be direct. Throws ReadFailed.
void read_exactly(const ReadFile& file, std::uint64_t offset, std::size_t n_bytes, std::uint8_t* out);

}  // namespace fucina
