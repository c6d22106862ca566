#include "kernels/pack.h"

#include "kernels/linear.h"

namespace fucina {

namespace {

template <class Tile>
void pack_blocks(const std::uint8_t* raw, int d_in, int d_out, int begin, int end, std::uint8_t* tiles) {
  using Raw = typename Tile::Raw;
  static constexpr Raw kZero{};
  const int n_blocks = d_in / Tile::kBlock;
  for (int t = begin; t < end; t++) {
    std::uint8_t* out = tiles + static_cast<std::size_t>(t) * n_blocks * Tile::kBytes;
    for (int b = 0; b < n_blocks; b++, out += Tile::kBytes) {
      const Raw* columns[kColumns];
      for (int c = 0; c < kColumns; c++) {
        const std::size_t row = static_cast<std::size_t>(t) * kColumns + c;
        columns[c] = row < static_cast<std::size_t>(d_out)
                         ? reinterpret_cast<const Raw*>(raw + (row * n_blocks + b) * sizeof(Raw))
                         : &kZero;
      }
      Tile::pack(columns, out);
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

// Calls `use` with the tile type of a quantized format.
template <class Use>
auto with_tile(Format format, Use use) {
  switch (format) {
    case Format::Q4_0:
      return use.template operator()<TileQ4_0>();
    case Format::Q4_1:
      return use.template operator()<TileQ4_1>();
    case Format::Q5_0:
      return use.template operator()<TileQ5_0>();
    case Format::Q5_1:
      return use.template operator()<TileQ5_1>();
    case Format::Q8_0:
      return use.template operator()<Eight>();
    case Format::Q4_K:
      return use.template operator()<TileQ4_K>();
    case Format::Q5_K:
      return use.template operator()<TileQ5_K>();
    default:
      return use.template operator()<KSix>();
  }
}

bool is_float(Format format) { return format_info(format).activation == ActivationKind::Float; }

}  // namespace

int packed_tile_columns(Format format) { return is_float(format) ? kFloatColumns : kColumns; }

std::size_t packed_tile_bytes(Format format, int d_in) {
  const auto n = static_cast<std::size_t>(d_in);
  if (is_float(format)) return n * kFloatColumns * static_cast<std::size_t>(format_info(format).block_bytes);
  return with_tile(format, [&]<class Tile>() { return n / Tile::kBlock * Tile::kBytes; });
}

void pack_tiles(Format format, const std::uint8_t* raw, int d_in, int d_out, int begin, int end, std::uint8_t* tiles) {
  if (format == Format::F32) return pack_floats<float>(raw, d_in, d_out, begin, end, tiles);
  if (is_float(format)) return pack_floats<std::uint16_t>(raw, d_in, d_out, begin, end, tiles);
  with_tile(format, [&]<class Tile>() { pack_blocks<Tile>(raw, d_in, d_out, begin, end, tiles); });
}

}  // namespace fucina
