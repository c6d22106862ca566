// One stored row to f32, for embedding look-ups.
#pragma once

#include "formats/formats.h"

namespace fucina {

// out[0..d_in) = the weights of a row. Products and sums are plain f32 operations in the order the format defines.
void dequantize_row(Format format, const std::uint8_t* row, int d_in, float* out);

}  // namespace fucina
