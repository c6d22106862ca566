// Raw GGUF rows to the packed tiles of kernels/tiles.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/formats.h"

namespace fucina {

// `columns` is how many columns of a quantized weight the tier interleaves: Kernels::columns, 8 or 16; `eights` how
// (kernels/quants.h). Output columns that share a tile: the grain in which threads divide a product.
int packed_tile_columns(Format format, int columns);
std::size_t packed_tile_bytes(Format format, int d_in, int columns);
// Packs tiles [begin, end) side by side into `tiles`; columns past d_out become zero.
void pack_tiles(Format format, const std::uint8_t* raw, int d_in, int d_out, int columns, bool eights, int begin,
                int end, std::uint8_t* tiles);

}  // namespace fucina
