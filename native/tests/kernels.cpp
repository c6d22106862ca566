// Every kernel of every tier that runs here against recorded results of the scalar oracle. Needs no Python, so that it
// also runs under an emulator, or on a machine that has nothing but a C++ compiler.
//
//   fucina_kernels FILE            recompute the cases of FILE with every tier; exit status 1 if any bit differs
//   fucina_kernels --record FILE   write FILE anew, with the scalar tier
//
// Inputs are integers of a counter, scaled by powers of two: no rounding and no math library, so every machine makes
// the same ones. A line of the file is a case's name, a hash of its inputs and a hash of its outputs.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "formats/formats.h"
#include "kernels/pack.h"
#include "recording.h"

namespace {

using namespace fucina;

// Rows to multiply: stretches of ordinary values, of zeros, of ties between two int8, of subnormal numbers, and of the
// same value all along, so that sums become as large as they can.
std::vector<float> activations(Random& random, int rows, int d_in) {
  std::vector<float> x;
  for (int row = 0; row < rows; row++) {
    for (int first = 0; first < d_in; first += 256) {
      const int kind = random.below(8);
      for (int i = first; i < std::min(first + 256, d_in); i++) {
        const float ordinary = random.spread();
        const float tie = i % 32 == 0 ? 127.0f : static_cast<float>(random.below(507) - 253) * 0.5f;
        const float constant = row % 2 == 0 ? 3.0f : -3.0f;
        const float choices[] = {0.0f, tie, ordinary * 0x1p-130f, constant};
        x.push_back(kind < 4 ? choices[kind] : ordinary);
      }
    }
  }
  return x;
}

// A weight format and where its blocks keep 16-bit float scales.
struct WeightFormat {
  const char* name;
  Format format;
  std::vector<std::size_t> halves;
};

const std::vector<WeightFormat>& weight_formats() {
  static const std::vector<WeightFormat> formats{
      {"F32", Format::F32, {}},
      {"F16", Format::F16, {0}},
      {"BF16", Format::BF16, {}},
      {"Q4_0", Format::Q4_0, {offsetof(RawQ4_0, d)}},
      {"Q4_1", Format::Q4_1, {offsetof(RawQ4_1, d), offsetof(RawQ4_1, m)}},
      {"Q5_0", Format::Q5_0, {offsetof(RawQ5_0, d)}},
      {"Q5_1", Format::Q5_1, {offsetof(RawQ5_1, d), offsetof(RawQ5_1, m)}},
      {"Q8_0", Format::Q8_0, {offsetof(RawQ8_0, d)}},
      {"Q4_K", Format::Q4_K, {offsetof(RawQ4_K, d), offsetof(RawQ4_K, dmin)}},
      {"Q5_K", Format::Q5_K, {offsetof(RawQ5_K, d), offsetof(RawQ5_K, dmin)}},
      {"Q6_K", Format::Q6_K, {offsetof(RawQ6_K, d)}},
      {"Q2_K", Format::Q2_K, {offsetof(RawQ2_K, d), offsetof(RawQ2_K, dmin)}},
      {"Q3_K", Format::Q3_K, {offsetof(RawQ3_K, d)}},
      {"IQ4_NL", Format::IQ4_NL, {offsetof(RawIQ4_NL, d)}},
      {"IQ4_XS", Format::IQ4_XS, {offsetof(RawIQ4_XS, d)}},
      {"MXFP4", Format::MXFP4, {}},
  };
  return formats;
}

// Raw rows of a weight: any bytes, or the extreme ones; but for the scales, which are finite and modest.
std::vector<std::uint8_t> raw_weight(Random& random, const WeightFormat& f, int d_in, int d_out) {
  const FormatInfo info = format_info(f.format);
  std::vector<std::uint8_t> raw(static_cast<std::size_t>(d_in / info.block_weights) * info.block_bytes * d_out);
  for (std::uint8_t* block = raw.data(); block < raw.data() + raw.size(); block += info.block_bytes) {
    if (f.format == Format::F32 || f.format == Format::BF16) {
      const auto bits = std::bit_cast<std::uint32_t>(random.spread());
      const auto upper = static_cast<std::uint16_t>(bits >> 16);
      std::memcpy(block, f.format == Format::F32 ? static_cast<const void*>(&bits) : &upper, info.block_bytes);
      continue;
    }
    const int kind = random.below(8);
    for (int i = 0; i < info.block_bytes; i++) {
      const int any = random.below(256);
      block[i] = static_cast<std::uint8_t>(kind == 0 ? 0xff : kind == 1 ? 0x80 : any);
    }
    if (f.format == Format::MXFP4) block[offsetof(RawMXFP4, e)] = static_cast<std::uint8_t>(118 + random.below(20));
    for (const std::size_t at : f.halves) {
      const std::uint16_t scale = random.half();
      std::memcpy(block + at, &scale, sizeof scale);
    }
  }
  return raw;
}

// Rows quantized by a tier, in blocks of at most `block_rows` rows.
struct Quantized {
  std::vector<std::int8_t> q;
  std::vector<float> d, d_sum;
  std::vector<std::int32_t> sum;
  std::vector<std::int16_t> sum16, sum32;

  Quantized(const Kernels& kernels, ActivationKind kind, int block_rows, const std::vector<float>& x, int rows,
            int d_in)
      : q(x.size()),
        d(x.size() / 32),
        d_sum(x.size() / 32),
        sum(x.size() / 32),
        sum16(x.size() / 16),
        sum32(x.size() / 32) {
    for (int r = 0; r < rows; r++) {
      const RowBlock block = row_block(rows, block_rows, block_of_row(rows, block_rows, r));
      const float* row = x.data() + static_cast<std::size_t>(r) * d_in;
      const int in_block = r - block.first;
      if (kind == ActivationKind::Block32) {
        kernels.quantize32(row, d_in, at_row(rows32(), d_in, block, in_block), block.rows);
      } else if (kind == ActivationKind::Block256) {
        kernels.quantize256(row, d_in, at_row(rows256(), d_in, block, in_block), block.rows);
      }
    }
  }

  Rows32 rows32() { return {q.data(), d.data(), d_sum.data(), sum.data()}; }
  Rows256 rows256() { return {q.data(), d.data(), sum16.data(), sum32.data()}; }

  Hash hash() const {
    Hash hash;
    hash.add(q), hash.add(d), hash.add(d_sum), hash.add(sum), hash.add(sum16), hash.add(sum32);
    return hash;
  }
};

struct LinearCase {
  int rows, d_in, d_out;
  bool bias, accumulate;
};

// The rows of float products: those of a row block alternate.
std::vector<float> spread(const std::vector<float>& x, int rows, int d_in, int block_rows) {
  std::vector<float> result(x.size());
  for (int r = 0; r < rows; r++) {
    const RowBlock block = row_block(rows, block_rows, block_of_row(rows, block_rows, r));
    for (int k = 0; k < d_in; k++) {
      result[static_cast<std::size_t>(block.first) * d_in + k * block.rows + r - block.first] =
          x[static_cast<std::size_t>(r) * d_in + k];
    }
  }
  return result;
}

// The product by one tier, its tiles shared out in two parts. What lies between the rows of the output must stay.
Hash product(const Kernels& kernels, const WeightFormat& f, const LinearCase& c, const std::vector<float>& x,
             const std::vector<std::uint8_t>& raw, const std::vector<float>& bias, std::vector<float> out) {
  const ActivationKind kind = format_info(f.format).activation;
  Quantized rows(kernels, kind, kernels.rows, x, c.rows, c.d_in);
  const auto interleaved = spread(x, c.rows, c.d_in, kernels.rows);
  const bool packs = kernels.columns > 0;
  const int columns = packs ? packed_tile_columns(f.format, kernels.columns) : 1;
  const int tiles = (c.d_out + columns - 1) / columns;
  std::vector<std::uint8_t> packed(packs ? packed_tile_bytes(f.format, c.d_in, kernels.columns) * tiles : 0);
  if (packs)
    pack_tiles(f.format, raw.data(), c.d_in, c.d_out, kernels.columns, kernels.eights, 0, tiles, packed.data());
  const LinearArgs args{
      .format = f.format,
      .weights = packs ? packed.data() : raw.data(),
      .d_in = c.d_in,
      .d_out = c.d_out,
      .rows = c.rows,
      .x = interleaved.data(),
      .rows32 = rows.rows32(),
      .rows256 = rows.rows256(),
      .out = out.data(),
      .out_stride = out.size() / c.rows,
      .bias = c.bias ? bias.data() : nullptr,
      .accumulate = c.accumulate,
  };
  kernels.linear(args, 0, tiles / 2);
  kernels.linear(args, tiles / 2, tiles);
  Hash hash;
  hash.add(out);
  return hash;
}

void add_linear(Cases& cases, const WeightFormat& f, const LinearCase& c) {
  const std::string name = std::string("linear/") + f.name + "/" + std::to_string(c.d_in) + "x" +
                           std::to_string(c.d_out) + "/rows" + std::to_string(c.rows) + (c.bias ? "/bias" : "") +
                           (c.accumulate ? "/accumulate" : "");
  Random random(name);
  const auto x = activations(random, c.rows, c.d_in);
  const auto raw = raw_weight(random, f, c.d_in, c.d_out);
  const auto bias = floats(random, static_cast<std::size_t>(c.d_out));
  const auto out = floats(random, static_cast<std::size_t>(c.rows) * (c.d_out + 3));
  Hash inputs;
  inputs.add(x), inputs.add(raw), inputs.add(bias), inputs.add(out);
  cases.add(name, inputs, [&](const Kernels& kernels) { return product(kernels, f, c, x, raw, bias, out); });
}

void add_products(Cases& cases) {
  std::vector<int> row_counts{31, 32, 33, 64, 127, 128, 129, 512};
  for (int rows = 17; rows >= 1; rows--) row_counts.insert(row_counts.begin(), rows);
  for (const WeightFormat& f : weight_formats()) {
    const bool wide = format_info(f.format).activation == ActivationKind::Block256;
    for (const int rows : row_counts) add_linear(cases, f, {rows, wide ? 512 : 160, 40, false, false});
    const std::vector<int> widths = wide ? std::vector{256, 512} : std::vector{32, 96, 256, 512};
    for (const int d_in : widths) {
      for (const int d_out : {8, 24, 101, 104}) {
        for (const int rows : {1, 7}) add_linear(cases, f, {rows, d_in, d_out, false, false});
      }
    }
    for (const int rows : {1, 6}) {
      add_linear(cases, f, {rows, 512, 45, true, false});
      add_linear(cases, f, {rows, 512, 45, false, true});
      add_linear(cases, f, {rows, 512, 45, true, true});
    }
  }
}

// Every 16-bit float as a weight: w * 1 + 0.
void add_every_weight(Cases& cases) {
  for (const WeightFormat& f : weight_formats()) {
    if (f.format != Format::F16 && f.format != Format::BF16) continue;
    std::vector<std::uint8_t> raw(2 << 16);
    for (std::size_t i = 0; i < raw.size(); i++) raw[i] = static_cast<std::uint8_t>(i % 2 ? i >> 9 : i >> 1);
    const std::vector<float> one{1.0f}, out(1 << 16);
    Hash inputs;
    inputs.add(raw);
    cases.add(std::string("linear/") + f.name + "/every_value", inputs, [&](const Kernels& kernels) {
      return product(kernels, f, {1, 1, 1 << 16, false, false}, one, raw, out, out);
    });
  }
}

void add_quantize(Cases& cases) {
  for (const int d_in : {32, 96, 256, 2048}) {
    for (const auto kind : {ActivationKind::Block32, ActivationKind::Block256}) {
      const bool wide = kind == ActivationKind::Block256;
      if (wide && d_in % 256 != 0) continue;
      const std::string name = std::string("quantize") + (wide ? "256/" : "32/") + std::to_string(d_in);
      Random random(name);
      auto x = activations(random, 40, d_in);
      for (std::size_t i = 5; i < x.size(); i += 997) x[i] = __builtin_nanf("");
      Hash inputs;
      inputs.add(x);
      cases.add(name, inputs, [&](const Kernels& kernels) { return Quantized(kernels, kind, 1, x, 40, d_in).hash(); });
    }
  }
}

// Norms, gates and sums of two rows of n values.
void add_rows(Cases& cases) {
  for (const int n : {8, 16, 24, 64, 120, 576, 2048}) {
    const std::string suffix = "/" + std::to_string(n);
    Random random("rows" + suffix);
    std::vector<float> x(static_cast<std::size_t>(n)), y = floats(random, x.size());
    for (float& v : x) {
      const int magnitude = random.below(8);
      v = random.unit() * static_cast<float>(1 << magnitude);  // past where exp saturates
    }
    Hash inputs;
    inputs.add(x), inputs.add(y);
    const auto add = [&](const char* name, const std::function<void(const Kernels&, std::vector<float>&)>& apply) {
      cases.add(name + suffix, inputs, [&](const Kernels& kernels) {
        std::vector<float> in_place = x;
        apply(kernels, in_place);
        Hash hash;
        hash.add(in_place);
        return hash;
      });
    };
    add("rms_norm", [&](const Kernels& k, auto& z) { k.rms_norm(z.data(), y.data(), 1e-6f, n, z.data()); });
    add("gate_silu", [&](const Kernels& k, auto& z) { k.gate_silu(z.data(), y.data(), n, z.data()); });
    add("gate_gelu", [&](const Kernels& k, auto& z) { k.gate_gelu(z.data(), y.data(), n, z.data()); });
    add("add", [&](const Kernels& k, auto& z) { k.add(y.data(), n, z.data()); });
    add("add_scaled", [&](const Kernels& k, auto& z) { k.add_scaled(0.3f, y.data(), n, z.data()); });
    add("softmax", [&](const Kernels& k, auto& z) { k.softmax(z.data(), n); });
    add("softmax_padded", [&](const Kernels& k, auto& z) {
      std::fill(z.end() - 5, z.end(), -INFINITY);
      k.softmax(z.data(), n);
    });
  }
}

void add_rotations(Cases& cases) {
  for (const int d_rotary : {2, 12, 16, 64, 80, 128}) {
    for (const bool halves : {false, true}) {
      const std::string name = std::string("rotate/") + (halves ? "halves/" : "neighbors/") + std::to_string(d_rotary);
      Random random(name);
      const auto head = floats(random, 128);
      std::vector<float> angles(static_cast<std::size_t>(d_rotary));
      for (float& a : angles) a = random.unit();
      Hash inputs;
      inputs.add(head), inputs.add(angles);
      cases.add(name, inputs, [&](const Kernels& kernels) {
        std::vector<float> rotated = head;
        kernels.rotate(rotated.data(), angles.data(), d_rotary, halves);
        Hash hash;
        hash.add(rotated);
        return hash;
      });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool recording = argc == 3 && std::string(argv[1]) == "--record";
  if (argc != 2 && !recording) {
    std::fprintf(stderr, "usage: %s [--record] FILE\n", argv[0]);
    return 2;
  }
  Cases cases(recording);
  if (!recording) cases.read(argv[1]);
  add_quantize(cases);
  add_rows(cases);
  add_rotations(cases);
  add_products(cases);
  add_every_weight(cases);
  add_attention(cases);
  if (recording) cases.write(argv[2]);
  return cases.finish();
}
