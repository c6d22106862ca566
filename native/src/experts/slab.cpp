#include "experts/slab.h"

#include <algorithm>
#include <cstring>

#include "kernels/pack.h"

namespace fucina {

namespace {

constexpr std::size_t kLine = 64;

int tiles_of(const Kernels& kernels, const ExpertMatrix& m) {
  const int columns = packed_tile_columns(m.format, kernels.columns);
  return (m.d_out + columns - 1) / columns;
}

}  // namespace

std::array<ExpertMatrix, 3> matrices(const ExpertShape& shape) { return {shape.gate, shape.up, shape.down}; }

std::size_t raw_bytes(const ExpertMatrix& m) {
  const FormatInfo info = format_info(m.format);
  return static_cast<std::size_t>(m.d_in / info.block_weights) * info.block_bytes * static_cast<std::size_t>(m.d_out);
}

std::size_t stored_bytes(const Kernels& kernels, bool tiles, const ExpertMatrix& m) {
  std::size_t n_bytes = raw_bytes(m);
  if (tiles) {
    const auto n_tiles = static_cast<std::size_t>(tiles_of(kernels, m));
    n_bytes = std::max(n_bytes, packed_tile_bytes(m.format, m.d_in, kernels.columns) * n_tiles);
  }
  return (n_bytes + kLine - 1) / kLine * kLine;
}

void store_matrix(const Kernels& kernels, bool tiles, const ExpertMatrix& m, const std::uint8_t* raw,
                  std::uint8_t* out) {
  if (tiles) {
    pack_tiles(m.format, raw, m.d_in, m.d_out, kernels.columns, kernels.eights, 0, tiles_of(kernels, m), out);
  } else {
    std::memcpy(out, raw, raw_bytes(m));
  }
}

MatrixPart part_of(const Kernels& kernels, bool tiles, const ExpertMatrix& m, int part, int parts) {
  const int columns = tiles ? packed_tile_columns(m.format, kernels.columns) : 1;
  const int n_tiles = (m.d_out + columns - 1) / columns;
  const int first = n_tiles * part / parts, end = n_tiles * (part + 1) / parts;
  const int first_row = std::min(first * columns, m.d_out), end_row = std::min(end * columns, m.d_out);
  const std::size_t raw_place = raw_bytes({m.format, m.d_in, first_row});
  const std::size_t before = static_cast<std::size_t>(first);
  return {{m.format, m.d_in, end_row - first_row},
          raw_place,
          tiles ? packed_tile_bytes(m.format, m.d_in, kernels.columns) * before : raw_place};
}

}  // namespace fucina
