#include "kernels/pack.h"

#include "kernels/linear.h"

namespace fucina {

namespace {

constexpr int kMostColumns = 16;

template <class Tile>
void pack_blocks(const std::uint8_t* raw, int d_in, int d_out, int columns, bool eights, int begin, int end,
                 std::uint8_t* tiles) {
  using Raw = typename Tile::Raw;
  static constexpr Raw kZero{};
  const int n_blocks = d_in / Tile::kBlock;
  const std::size_t tile_bytes = tile_size<Tile>(d_in, columns);
  for (int t = begin; t < end; t++) {
    for (int b = 0; b < n_blocks; b++) {
      const Raw* of_column[kMostColumns];
      for (int c = 0; c < columns; c++) {
        const std::size_t row = static_cast<std::size_t>(t) * columns + c;
        of_column[c] = row < static_cast<std::size_t>(d_out)
                           ? reinterpret_cast<const Raw*>(raw + (row * n_blocks + b) * sizeof(Raw))
                           : &kZero;
      }
      Tile::pack(of_column, columns, eights, b, tiles + t * tile_bytes);
    }
  }
}

template <class Element>
void pack_floats(const std::uint8_t* raw, int d_in, int d_out, int begin, int end, std::uint8_t* tiles) {
  for (int t = begin; t < end; t++) {
    auto* out = reinterpret_cast<Element*>(tiles) + static_cast<std::size_t>(t) * d_in * kFloatColumns;
    for (int c = 0; c < kFloatColumns; c++) {
      const std::size_t row = static_cast<std::size_t>(t) * kFloatColumns + c;
      for (int k = 0; k < d_in; k++) {
        Element value = 0;
        if (row < static_cast<std::size_t>(d_out)) {
          std::memcpy(&value, raw + (row * d_in + k) * sizeof(Element), sizeof(Element));
        }
        out[static_cast<std::size_t>(k) * kFloatColumns + c] = value;
      }
    }
  }
}

bool is_float(Format format) { return format_info(format).activation == ActivationKind::Float; }

}  // namespace

int packed_tile_columns(Format format, int columns) { return is_float(format) ? kFloatColumns : columns; }

std::size_t packed_tile_bytes(Format format, int d_in, int columns) {
  if (is_float(format)) {
    return static_cast<std::size_t>(d_in) * kFloatColumns * static_cast<std::size_t>(format_info(format).block_bytes);
  }
  return with_tile(format, [&]<class Tile>() { return tile_size<Tile>(d_in, columns); });
}

void pack_tiles(Format format, const std::uint8_t* raw, int d_in, int d_out, int columns, bool eights, int begin,
                int end, std::uint8_t* tiles) {
  if (format == Format::F32) return pack_floats<float>(raw, d_in, d_out, begin, end, tiles);
  if (is_float(format)) return pack_floats<std::uint16_t>(raw, d_in, d_out, begin, end, tiles);
  with_tile(format, [&]<class Tile>() { pack_blocks<Tile>(raw, d_in, d_out, columns, eights, begin, end, tiles); });
}

}  // namespace fucina
