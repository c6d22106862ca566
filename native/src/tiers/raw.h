// Products straight from the raw GGUF rows, without packing: those of the scalar oracle.
#pragma once

#include "kernels/kernels.h"

namespace fucina {

// out[r][c] = x[r] . w[c] for the columns [begin, end), where `weights` are raw rows: one value at a time, in the order
// the law states.
void linear_raw(const LinearArgs& a, int begin, int end);

}  // namespace fucina
