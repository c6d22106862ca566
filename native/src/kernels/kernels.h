// What an instruction tier offers: one table of functions. Shapes and bounds were checked when an op was bound.
//
// The law (ARCHITECTURE.md): every function gives the same bits in every tier, and a row's result depends on that row
// only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/formats.h"

namespace fucina {

// Rows quantized per 32 values: x = d * q inside a block. All arrays are (rows, ...), row-major.
struct Rows32 {
  const std::int8_t* q;     // (rows, d_in)
  const float* d;           // (rows, d_in / 32)
  const float* d_sum;       // (rows, d_in / 32): d * sum of the block's q, for formats with a minimum
  const std::int32_t* sum;  // (rows, d_in / 32): sum of the block's q, for formats with an offset
};

// Rows quantized per 256 values.
struct Rows256 {
  const std::int8_t* q;       // (rows, d_in)
  const float* d;             // (rows, d_in / 256)
  const std::int16_t* sum16;  // (rows, d_in / 16)
  const std::int16_t* sum32;  // (rows, d_in / 32)
};

struct LinearArgs {
  Format format;
  const std::uint8_t* weights;  // packed tiles, or raw rows where the tier packs nothing
  int d_in, d_out;
  int rows;
  const float* x;  // (rows, d_in), for float formats
  Rows32 rows32;
  Rows256 rows256;
  float* out;  // (rows, out_stride)
  std::size_t out_stride;
  const float* bias;  // (d_out,) or null
  bool accumulate;    // out += instead of out =
};

// How the cache stores keys and values (layout: storage/kv/geometry.py).
enum class KvFormat { F16 = 0, Q8_0 = 1, F32 = 2 };

// The queries of one KV head in one span. Query i belongs to row i / group and is head i % group of the KV head's
// group.
struct AttendArgs {
  const std::uint8_t* keys;    // this layer's and KV head's K in block 0 of the pool
  const std::uint8_t* values;  // likewise V
  std::size_t block_bytes;     // from one block of the pool to the next
  const std::int32_t* blocks;  // the span's block table
  KvFormat format;
  int d_head;
  int group;
  int start;   // position of the span's row 0
  int window;  // positions a row sees, itself included; 0: all
  float scale;
  const float* q;        // row 0, head 0 of the group
  std::size_t q_stride;  // from one row to the next
  float* out;
  std::size_t out_stride;
  int query_begin, query_end;
  float* scratch;  // attend_scratch_floats(d_head) floats, one thread's own
};

constexpr int kQueriesPerTask = 32;

constexpr std::size_t attend_scratch_floats(int d_head) {
  return static_cast<std::size_t>(d_head) * (2 * 64 + 1 + 2 * kQueriesPerTask) + 64;
}

struct Kernels {
  const char* name;

  // Output columns that share a tile: the grain in which threads divide a product. 1 where nothing is packed.
  int (*tile_columns)(Format);
  // Bytes of one tile; 0 where this tier computes from raw rows.
  std::size_t (*tile_bytes)(Format, int d_in);
  // Repack the raw rows of tiles [begin, end) into tiles; columns past d_out become zero.
  void (*pack)(Format, const std::uint8_t* raw, int d_in, int d_out, int begin, int end, std::uint8_t* tiles);
  // out[r][c] = x[r] . w[c] for the columns of tiles [begin, end).
  void (*linear)(const LinearArgs&, int begin, int end);

  // y = x / sqrt(mean(x^2) + eps) * weight; n is a multiple of 8; y may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
  // y = silu(x) * up, y = gelu(x) * up; y may be x.
  void (*gate_silu)(const float* x, const float* up, int n, float* y);
  void (*gate_gelu)(const float* x, const float* up, int n, float* y);
  void (*add)(const float* y, int n, float* x);  // x += y
  // One row to int8: d = max|x| / 127 per block, q = x * (127 / max|x|) rounded to even.
  void (*quantize32)(const float* x, int n, std::int8_t* q, float* d, float* d_sum, std::int32_t* sum);
  void (*quantize256)(const float* x, int n, std::int8_t* q, float* d, std::int16_t* sum16, std::int16_t* sum32);
  // Rotate the first d_rotary values of a head; angles = [cos..., sin...], d_rotary / 2 each.
  void (*rotate)(float* head, const float* angles, int d_rotary, bool halves);
  // Write one position's K and V of one head into its block (layout: storage/kv/geometry.py).
  void (*store_kv)(const float* k, const float* v, int d_head, KvFormat format, int slot, std::uint8_t* k_block,
                   std::uint8_t* v_block);
  void (*attend)(const AttendArgs&);
};

}  // namespace fucina
