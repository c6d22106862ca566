// What one expert takes: in the file, and in a slot of the store.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "experts/source.h"
#include "kernels/kernels.h"

namespace fucina {

std::array<ExpertMatrix, 3> matrices(const ExpertShape& shape);  // gate, up, down

// Bytes of a matrix in the file.
std::size_t raw_bytes(const ExpertMatrix& m);

// Bytes of a matrix in a slot, in tiles or in the rows of the file; the next one begins at a line of the cache.
std::size_t stored_bytes(const Kernels& kernels, bool tiles, const ExpertMatrix& m);

// Puts a matrix as the file has it where the slot has its place.
void store_matrix(const Kernels& kernels, bool tiles, const ExpertMatrix& m, const std::uint8_t* raw,
                  std::uint8_t* out);

}  // namespace fucina
