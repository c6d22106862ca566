#include "experts/read.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace fucina {

namespace {

// Reads up to `most` bytes, and at least `least` unless the file ends before. Throws ReadFailed.
void read_between(const ReadFile& file, std::uint64_t offset, std::size_t least, std::size_t most, std::uint8_t* out) {
  for (std::size_t done = 0; done < least;) {
    const ssize_t got = pread(file.descriptor, out + done, most - done, static_cast<off_t>(offset + done));
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (got == 0) {
      throw ReadFailed(file.name + ": the file ends at byte " + std::to_string(offset + done) +
                       ", within an expert: it was shortened after the model was loaded. Fetch it again");
    } else if (errno != EINTR) {
      throw ReadFailed(file.name + ": an expert at byte " + std::to_string(offset) + " cannot be read (" +
                       std::generic_category().message(errno) + "); check the disk");
    }
  }
}

}  // namespace

const std::uint8_t* read_range(const ReadFile& file, std::uint64_t offset, std::size_t n_bytes, std::uint8_t* room) {
  if (!file.direct) {
    read_exactly(file, offset, n_bytes, room);
    return room;
  }
  const std::size_t before = offset % kReadGrain;
  const std::size_t whole = (before + n_bytes + kReadGrain - 1) / kReadGrain * kReadGrain;
  read_between(file, offset - before, before + n_bytes, whole, room);
  return room + before;
}

bool is_cached(const ReadFile& file, std::uint64_t offset, std::size_t n_bytes) {
#ifdef RWF_NOWAIT
  const auto is_there = [&](std::uint64_t at) {
    std::uint8_t byte;
    const iovec room{&byte, 1};
    return preadv2(file.descriptor, &room, 1, static_cast<off_t>(at), RWF_NOWAIT) == 1;
  };
  return !file.direct && n_bytes > 0 && is_there(offset) && is_there(offset + n_bytes - 1);
#else
  (void)file, (void)offset, (void)n_bytes;
  return false;
#endif
}

void read_exactly(const ReadFile& file, std::uint64_t offset, std::size_t n_bytes, std::uint8_t* out) {
  read_between(file, offset, n_bytes, n_bytes, out);
}

}  // namespace fucina
