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

// Bytes that a matrix has in a slot; the next one begins at a line of the cache. With `tiles` they are room for its
// tiles and for the rows of the file, whichever is more.
std::size_t stored_bytes(const Kernels& kernels, bool tiles, const ExpertMatrix& m);

// Puts a matrix as the file has it where the slot has its place.
void store_matrix(const Kernels& kernels, bool tiles, const ExpertMatrix& m, const std::uint8_t* raw,
                  std::uint8_t* out);

// Some rows of a matrix, that can be read and stored apart from the others.
struct MatrixPart {
  ExpertMatrix matrix;       // of these rows only
  std::size_t raw_place;     // bytes of the matrix before it, in the file
  std::size_t stored_place;  // and in the slot
};
MatrixPart part_of(const Kernels& kernels, bool tiles, const ExpertMatrix& m, int part, int parts);

}  // namespace fucina
