// What an instruction tier offers: one table of functions. Shapes and bounds were checked when an op was bound.
//
// The law (ARCHITECTURE.md): every function gives the same bits in every tier, and a row's result depends on that row
// only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "formats/formats.h"

namespace fucina {

// The rows of a pass are computed in blocks of up to `most` rows, as few as can be and those alike: 7 rows with most =
// 4 are 4 and 3. A block's quantized rows lie interleaved, so that what one instruction after the other needs shares a
// cache line: rows at equal distances would meet in the same bank of the cache.
struct RowBlock {
  int first, rows;
};
FUCINA_INLINE constexpr int row_blocks(int n_rows, int most) { return (n_rows + most - 1) / most; }
FUCINA_INLINE constexpr RowBlock row_block(int n_rows, int most, int index) {
  const int blocks = row_blocks(n_rows, most), size = n_rows / blocks, larger = n_rows % blocks;
  return {index * size + (index < larger ? index : larger), size + (index < larger)};
}
FUCINA_INLINE constexpr int block_of_row(int n_rows, int most, int row) {
  const int blocks = row_blocks(n_rows, most), size = n_rows / blocks, larger = n_rows % blocks;
  return row < larger * (size + 1) ? row / (size + 1) : larger + (row - larger * (size + 1)) / size;
}

// Rows quantized per 32 values: x = d * q inside a block. Each array holds one row block after the other; within one,
// the rows' groups (four q, or one scale or sum) alternate.
struct Rows32 {
  std::int8_t* q;     // d_in a row
  float* d;           // d_in / 32 a row
  float* d_sum;       // d_in / 32: d * sum of the block's q, for formats with a minimum
  std::int32_t* sum;  // d_in / 32: sum of the block's q, for formats with an offset
};

// Rows quantized per 256 values; likewise, with sums in groups of two.
struct Rows256 {
  std::int8_t* q;       // d_in a row
  float* d;             // d_in / 256
  std::int16_t* sum16;  // d_in / 16
  std::int16_t* sum32;  // d_in / 32
};

// Moves the arrays of row 0 of a pass to a row's place: `rows` and `row` are those of its block.
FUCINA_INLINE constexpr Rows32 at_row(Rows32 r, int d_in, RowBlock block, int row) {
  const std::size_t first = block.first, values = d_in;
  return {r.q + first * values + 4 * row, r.d + first * (values / 32) + row, r.d_sum + first * (values / 32) + row,
          r.sum + first * (values / 32) + row};
}
FUCINA_INLINE constexpr Rows256 at_row(Rows256 r, int d_in, RowBlock block, int row) {
  const std::size_t first = block.first, values = d_in;
  return {r.q + first * values + 4 * row, r.d + first * (values / 256) + row, r.sum16 + first * (values / 16) + 2 * row,
          r.sum32 + first * (values / 32) + 2 * row};
}

struct LinearArgs {
  Format format;
  const std::uint8_t* weights;  // packed tiles, or raw rows where the tier packs nothing
  int d_in, d_out;
  int rows;
  const float* x;  // for float formats: like Rows32's q, one value a group
  Rows32 rows32;
  Rows256 rows256;
  float* out;  // (rows, out_stride)
  std::size_t out_stride;
  const float* bias;  // (d_out,) or null
  bool accumulate;    // out += instead of out =
};

// How the cache stores keys and values (layout: storage/kv/geometry.py).
enum class KvFormat { F16 = 0, Q8_0 = 1, F32 = 2 };

// Queries of one span and of some KV heads that lie one after the other. Query i of a KV head belongs to row i / group
// and is head i % group of the KV head's group.
struct AttendArgs {
  const std::uint8_t* keys;    // this layer's K of the first KV head in block 0 of the pool
  const std::uint8_t* values;  // likewise V
  std::size_t head_bytes;      // from one KV head's K (or V) to the next one's
  std::size_t block_bytes;     // from one block of the pool to the next
  const std::int32_t* blocks;  // the span's block table
  KvFormat format;
  int d_head;
  int group;
  int start;   // position of the span's row 0
  int window;  // positions a row sees, itself included; 0: all
  float scale;
  const float* q;        // row 0, first head of the first group
  std::size_t q_stride;  // from one row to the next
  float* out;
  std::size_t out_stride;
  int heads;                       // KV heads; with all their queries no more than kQueriesPerTask
  int query_begin, query_end;      // of each
  const std::uint8_t* afterwards;  // K of the block that this thread is likely to read next
  float* scratch;                  // attend_scratch_floats(d_head) floats, one thread's own
  // Where not null, `attend` reads only stretches [stretch_begin, stretch_end) and leaves their sums here, for
  // `gather`: (stretches of all positions, partials_stride) floats, d_head + 2 for each of the task's queries.
  float* partials;
  std::size_t partials_stride;
  int stretch_begin, stretch_end;
};

// What the multiply-adds of a kind of weight are made of: f32 (every float format, and attention); unsigned bytes of
// four or five bits; of six bits, with a scale for every sixteen weights; signed bytes.
enum class Mix { F32 = 0, Nibbles = 1, Scaled = 2, Bytes = 3 };

constexpr int kQueriesPerTask = 32;
// Blocks of 64 positions combine inside stretches of 256, and those with one another.
constexpr int kStretchBlocks = 4;

constexpr std::size_t attend_scratch_floats(int d_head) {
  return static_cast<std::size_t>(d_head) * (64 + 2 * kQueriesPerTask) + 64 * kQueriesPerTask;
}

struct Kernels {
  const char* name;

  // Columns of a quantized weight that a packed tile interleaves (kernels/pack.h); 0: computes from raw rows.
  int columns;
  // Whether they are packed in eights (kernels/quants.h).
  bool eights;
  // The most rows of a row block; linear_raw (tiers/raw.h) wants blocks of one.
  int rows;
  // out[r][c] = x[r] . w[c] for the columns of tiles [begin, end); without tiles, for columns [begin, end).
  void (*linear)(const LinearArgs&, int begin, int end);

  // y = x / sqrt(mean(x^2) + eps) * weight; n is a multiple of 8; y may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
  // y = silu(x) * up, y = gelu(x) * up; y may be x.
  void (*gate_silu)(const float* x, const float* up, int n, float* y);
  void (*gate_gelu)(const float* x, const float* up, int n, float* y);
  void (*add)(const float* y, int n, float* x);                      // x += y
  void (*add_scaled)(float scale, const float* y, int n, float* x);  // x = fma(scale, y, x)
  // x = e^(x - max x) / sum of those; n is a multiple of 8, what is -infinity becomes 0.
  void (*softmax)(float* x, int n);
  // One row to int8: d = max|x| / 127 per block, q = x * (127 / max|x|) rounded to even; `rows` are in its row block.
  void (*quantize32)(const float* x, int n, Rows32 row, int rows);
  void (*quantize256)(const float* x, int n, Rows256 row, int rows);
  // Rotate the first d_rotary values of a head; angles = [cos..., sin...], d_rotary / 2 each.
  void (*rotate)(float* head, const float* angles, int d_rotary, bool halves);
  // Write one position's K and V of one head into its block (layout: storage/kv/geometry.py).
  void (*store_kv)(const float* k, const float* v, int d_head, KvFormat format, int slot, std::uint8_t* k_block,
                   std::uint8_t* v_block);
  void (*attend)(const AttendArgs&);
  // The results of all queries from the sums of all stretches.
  void (*gather)(const AttendArgs&);

  // Runs `rounds` rounds of a mix on registers and one cache line; gives how many multiply-adds that were. Null in the
  // scalar tier, which nobody measures.
  double (*multiply_adds)(Mix, long rounds);
};

}  // namespace fucina
