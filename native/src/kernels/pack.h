// Packing raw GGUF rows into tiles of eight (quantized) or 32 (float) columns, once at load. The same for every tier
// that uses these tiles, so it is compiled once.
#pragma once

#include "kernels/kernels.h"

namespace fucina {

int packed_tile_columns(Format format);
std::size_t packed_tile_bytes(Format format, int d_in);
void pack_tiles(Format format, const std::uint8_t* raw, int d_in, int d_out, int begin, int end, std::uint8_t* tiles);

}  // namespace fucina
