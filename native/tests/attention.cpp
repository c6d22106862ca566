// The recorded cases of the cache and of attention: formats, groups, windows, starts, one query and many.
#include <algorithm>
#include <bit>

#include "recording.h"

namespace fucina {

namespace {

struct AttendCase {
  int d_head, group, start, rows, window, heads = 1;
};

// All positions of all heads into a pool whose blocks are taken from the last to the first.
std::vector<std::uint8_t> stored(const Kernels& kernels, KvFormat format, int d_head, int heads,
                                 const std::vector<float>& k, const std::vector<float>& v, std::size_t head_bytes,
                                 int n_blocks) {
  const std::size_t half = head_bytes * heads;
  std::vector<std::uint8_t> pool(2 * half * n_blocks);
  for (int i = 0; i < static_cast<int>(k.size()) / d_head; i++) {
    const int p = i / heads;
    std::uint8_t* block = pool.data() + 2 * half * (n_blocks - 1 - p / 64) + head_bytes * (i % heads);
    kernels.store_kv(&k[i * d_head], &v[i * d_head], d_head, format, p % 64, block, block + half);
  }
  return pool;
}

// Any bits as keys and values, NaN among them: rounding to 16 bits, ties and overflow.
void add_conversions(Cases& cases) {
  Random random("store/f16");
  std::vector<float> values(64 * 256);
  for (float& v : values) {
    const auto bits = static_cast<std::uint32_t>(random.bits());
    const std::uint32_t exponent = random.below(8) == 0 ? bits >> 23 & 255u : 100u + (bits >> 23) % 48u;
    const std::uint32_t mantissa = bits & (random.below(2) == 0 ? 0x7fffffu : 0x7ff000u);  // half of them ties or even
    v = std::bit_cast<float>((bits & 0x80000000u) | exponent << 23 | mantissa);
  }
  Hash inputs;
  inputs.add(values);
  cases.add("store/f16/any_bits", inputs, [&](const Kernels& kernels) {
    Hash hash;
    hash.add(stored(kernels, KvFormat::F16, 256, 1, values, values, std::size_t{2} * 64 * 256, 1));
    return hash;
  });
}

AttendArgs task_of(KvFormat format, const AttendCase& c, const std::vector<std::uint8_t>& pool, std::size_t block_bytes,
                   const std::vector<std::int32_t>& blocks, const std::vector<float>& q, int begin) {
  const int per_task = kQueriesPerTask / c.heads;
  AttendArgs args{};
  args.keys = pool.data();
  args.values = pool.data() + block_bytes / 2;
  args.block_bytes = block_bytes;
  args.head_bytes = block_bytes / 2 / static_cast<std::size_t>(c.heads);
  args.blocks = blocks.data();
  args.format = format;
  args.d_head = c.d_head;
  args.group = c.group;
  args.start = c.start;
  args.window = c.window;
  args.scale = 0.125f;
  args.q = q.data();
  args.q_stride = args.out_stride = static_cast<std::size_t>(c.heads * c.group * c.d_head);
  args.afterwards = pool.data();
  args.heads = c.heads;
  args.query_begin = begin;
  args.query_end = std::min(begin + per_task, c.rows * c.group);
  args.partials_stride = static_cast<std::size_t>(kQueriesPerTask) * (c.d_head + 2);
  return args;
}

// Every query in two ways: at once, and by stretches, the last one first.
Hash attended(const Kernels& kernels, KvFormat format, const AttendCase& c, const std::vector<std::uint8_t>& pool,
              std::size_t block_bytes, const std::vector<float>& q) {
  std::vector<std::int32_t> blocks(pool.size() / block_bytes);
  for (std::size_t i = 0; i < blocks.size(); i++) blocks[i] = static_cast<std::int32_t>(blocks.size() - 1 - i);
  const int stretches = (static_cast<int>(blocks.size()) + kStretchBlocks - 1) / kStretchBlocks;
  std::vector<float> at_once(q.size()), by_stretches(q.size()), scratch(attend_scratch_floats(c.d_head));
  std::vector<float> partials(static_cast<std::size_t>(stretches * kQueriesPerTask) * (c.d_head + 2));
  for (int begin = 0; begin < c.rows * c.group; begin += kQueriesPerTask / c.heads) {
    AttendArgs args = task_of(format, c, pool, block_bytes, blocks, q, begin);
    args.scratch = scratch.data();
    args.out = at_once.data();
    kernels.attend(args);
    args.out = by_stretches.data();
    args.partials = partials.data();
    for (int stretch = stretches - 1; stretch >= 0; stretch--) {
      args.stretch_begin = stretch;
      args.stretch_end = stretch + 1;
      kernels.attend(args);
    }
    args.stretch_end = stretches;
    kernels.gather(args);
  }
  Hash hash;
  hash.add(pool), hash.add(at_once), hash.add(by_stretches);
  return hash;
}

}  // namespace

void add_attention(Cases& cases) {
  add_conversions(cases);
  const std::vector<AttendCase> shapes{
      {64, 1, 0, 1, 0},      {64, 3, 0, 70, 0},       {64, 3, 63, 1, 0},   {64, 1, 64, 2, 0},    {64, 9, 255, 1, 0},
      {64, 2, 256, 1, 0},    {64, 4, 300, 5, 0},      {64, 2, 700, 1, 0},  {64, 3, 190, 9, 100}, {64, 1, 700, 3, 64},
      {64, 8, 513, 1, 512},  {96, 2, 100, 4, 0},      {96, 5, 30, 1, 7},   {128, 4, 127, 3, 0},  {128, 1, 320, 1, 0},
      {128, 33, 5, 1, 0},    {256, 4, 65, 2, 0},      {256, 1, 260, 1, 1}, {32, 2, 64, 66, 0},   {160, 2, 70, 2, 50},
      {64, 2, 290, 1, 0, 3}, {64, 3, 250, 5, 100, 2},
  };
  const std::vector<std::pair<const char*, KvFormat>> formats{
      {"f16", KvFormat::F16}, {"q8_0", KvFormat::Q8_0}, {"f32", KvFormat::F32}};
  for (const auto& [format_name, kv_format] : formats) {
    const KvFormat format = kv_format;
    for (const AttendCase& c : shapes) {
      const std::string name = std::string("attend/") + format_name + "/head" + std::to_string(c.d_head) + "x" +
                               std::to_string(c.group) + "/start" + std::to_string(c.start) + "/rows" +
                               std::to_string(c.rows) + "/window" + std::to_string(c.window) +
                               (c.heads == 1 ? "" : "/heads" + std::to_string(c.heads));
      const auto d = static_cast<std::size_t>(c.d_head), values = d * c.heads * (c.start + c.rows);
      Random random(name);
      const auto k = floats(random, values), v = floats(random, values);
      const auto q = floats(random, static_cast<std::size_t>(c.rows * c.group * c.heads) * d);
      Hash inputs;
      inputs.add(k), inputs.add(v), inputs.add(q);
      const std::size_t head_bytes =
          format == KvFormat::Q8_0 ? 64 * d + 64 * d / 32 * sizeof(float) : 64 * d * (format == KvFormat::F16 ? 2 : 4);
      cases.add(name, inputs, [&](const Kernels& kernels) {
        const auto pool = stored(kernels, format, c.d_head, c.heads, k, v, head_bytes, (c.start + c.rows + 63) / 64);
        return attended(kernels, format, c, pool, 2 * head_bytes * c.heads, q);
      });
    }
  }
}

}  // namespace fucina
