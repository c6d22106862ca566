#include "experts/slab.h"

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
  const std::size_t n_bytes =
      tiles ? packed_tile_bytes(m.format, m.d_in, kernels.columns) * static_cast<std::size_t>(tiles_of(kernels, m))
            : raw_bytes(m);
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

}  // namespace fucina
