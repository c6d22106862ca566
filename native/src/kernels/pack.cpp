#include "kernels/pack.h"

#include "kernels/linear.h"

namespace fucina {

namespace {

// Rows of a tile that are worth fetching ahead: longer ones would push each other out of the cache, and are long enough
// for processors to see what comes next.
constexpr std::size_t kMostAhead = 128 * 1024;

// Fetches bytes [begin, end) of what is packed next into a level of the cache: tiles of floats fill the first.
template <int level>
FUCINA_INLINE void fetch(const std::uint8_t* next, std::size_t begin, std::size_t end) {
  for (std::size_t line = begin / 64 * 64; line < end; line += 64) __builtin_prefetch(next + line, 0, 4 - level);
}

template <class Tile, int columns>
void pack_blocks(const std::uint8_t* raw, int d_in, int d_out, bool eights, int begin, int end, std::uint8_t* tiles) {
  using Raw = typename Tile::Raw;
  static constexpr Raw kZero{};
  const int n_blocks = d_in / Tile::kBlock;
  const std::size_t tile_bytes = tile_size<Tile>(d_in, columns);
  const std::size_t step_bytes = columns * sizeof(Raw), raw_bytes = n_blocks * step_bytes;
  for (int t = begin; t < end; t++, tiles += tile_bytes) {
    const int first = t * columns, present = d_out - first < columns ? d_out - first : columns;
    const bool ahead = raw_bytes <= kMostAhead && d_out - first > columns;
    const Raw* of_column[kMostColumns];
    for (int c = 0; c < columns; c++) {
      const std::size_t row = static_cast<std::size_t>(first) + c;
      of_column[c] = c < present ? reinterpret_cast<const Raw*>(raw) + row * n_blocks : &kZero;
    }
    for (int b = 0; b < n_blocks; b++) {
      if (ahead) fetch<1>(raw + (t + 1) * raw_bytes, b * step_bytes, (b + 1) * step_bytes);
      Tile::template pack<columns>(of_column, eights, b, tiles);
      for (int c = 0; c < present; c++) of_column[c]++;
    }
  }
}

using Halves = std::uint16_t __attribute__((vector_size(16)));
using Doubles = std::uint64_t __attribute__((vector_size(16)));

// Four columns of the elements that a vector has of one.
FUCINA_INLINE void pack_vectors(const float* const* columns, int k, float* out) {
  Words w[4];
  for (int c = 0; c < 4; c++) w[c] = load_vector<Words>(columns[c] + k);
  transpose_words(w[0], w[1], w[2], w[3]);
  for (int i = 0; i < 4; i++) store_vector(out + i * kFloatColumns, w[i]);
}
FUCINA_INLINE void pack_vectors(const std::uint16_t* const* columns, int k, std::uint16_t* out) {
  Halves h[4];
  for (int c = 0; c < 4; c++) h[c] = load_vector<Halves>(columns[c] + k);
  const auto pair = [](Halves a, Halves b, Words& first, Words& last) {
    first = std::bit_cast<Words>(FUCINA_SHUFFLE(Halves, a, b, 0, 8, 1, 9, 2, 10, 3, 11));
    last = std::bit_cast<Words>(FUCINA_SHUFFLE(Halves, a, b, 4, 12, 5, 13, 6, 14, 7, 15));
  };
  Words ab[2], cd[2];
  pair(h[0], h[1], ab[0], ab[1]);
  pair(h[2], h[3], cd[0], cd[1]);
  unroll<2>(FUCINA_EACH(i) {
    const auto first = std::bit_cast<Doubles>(FUCINA_SHUFFLE(Words, ab[i], cd[i], 0, 4, 1, 5));
    const auto last = std::bit_cast<Doubles>(FUCINA_SHUFFLE(Words, ab[i], cd[i], 2, 6, 3, 7));
    store_vector(out + (4 * i) * kFloatColumns, std::uint64_t{first[0]});
    store_vector(out + (4 * i + 1) * kFloatColumns, std::uint64_t{first[1]});
    store_vector(out + (4 * i + 2) * kFloatColumns, std::uint64_t{last[0]});
    store_vector(out + (4 * i + 3) * kFloatColumns, std::uint64_t{last[1]});
  });
}

// A cache line of each column, one column after the other: rows at a distance of a power of two, which are common,
// share too few places of the cache to be read side by side.
template <class Element>
void pack_floats(const std::uint8_t* raw, int d_in, int d_out, int begin, int end, std::uint8_t* tiles) {
  constexpr int in_line = 64 / sizeof(Element), in_vector = 16 / sizeof(Element);
  const std::size_t step_bytes = 64 * kFloatColumns, raw_bytes = sizeof(Element) * kFloatColumns * d_in;
  const auto* rows = reinterpret_cast<const Element*>(raw);
  auto* out = reinterpret_cast<Element*>(tiles);
  for (int t = begin; t < end; t++, out += static_cast<std::size_t>(d_in) * kFloatColumns) {
    const bool ahead = raw_bytes <= kMostAhead && d_out - t * kFloatColumns > kFloatColumns;
    for (int line = 0; line < d_in; line += in_line) {
      const std::size_t step = line / in_line * step_bytes;
      if (ahead) fetch<2>(raw + (t + 1) * raw_bytes, step, step + step_bytes);
      const int line_end = d_in < line + in_line ? d_in : line + in_line;
      for (int c = 0; c < kFloatColumns; c += 4) {
        const int first = t * kFloatColumns + c, present = d_out - first;
        const Element* columns[4];
        for (int i = 0; i < 4; i++) columns[i] = i < present ? rows + static_cast<std::size_t>(first + i) * d_in : rows;
        int k = line;
        if (present >= 4) {
          for (; k + in_vector <= line_end; k += in_vector) pack_vectors(columns, k, out + k * kFloatColumns + c);
        }
        for (; k < line_end; k++) {
          for (int i = 0; i < 4; i++)
            out[k * kFloatColumns + c + i] = i < present ? load_vector<Element>(columns[i] + k) : Element{};
        }
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
  with_tile(format, [&]<class Tile>() {
    const auto pack = columns == 8 ? pack_blocks<Tile, 8> : pack_blocks<Tile, kMostColumns>;
    pack(raw, d_in, d_out, eights, begin, end, tiles);
  });
}

}  // namespace fucina
