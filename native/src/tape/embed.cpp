#include "tape/embed.h"

#include <cmath>

#include "formats/dequantize.h"

namespace fucina {

EmbedOp::EmbedOp(std::string op_name, Format format, const std::uint8_t* table, float scale, std::shared_ptr<Slab> out)
    : Op(std::move(op_name)), format_(format), table_(table), scale_(scale), out_(std::move(out)) {
  const FormatInfo info = format_info(format);
  row_bytes_ = static_cast<std::size_t>(out_->width / info.block_weights) * info.block_bytes;
}

void EmbedOp::run(Team::Job& job, const Pass& pass) {
  job.share(pass.rows(), [&](Turn turn) {
    float* out = out_->row(turn.piece);
    const auto token = static_cast<std::size_t>(pass.tokens[static_cast<std::size_t>(turn.piece)]);
    dequantize_row(format_, table_ + token * row_bytes_, out_->width, out);
    if (scale_ == 1.0f) return;
    for (int i = 0; i < out_->width; i++) out[i] = out[i] * scale_;
  });
}

AnglesOp::AnglesOp(std::string op_name, std::vector<double> frequencies, double magnitude, std::shared_ptr<Slab> out)
    : Op(std::move(op_name)), frequencies_(std::move(frequencies)), magnitude_(magnitude), out_(std::move(out)) {}

void AnglesOp::run(Team::Job& job, const Pass& pass) {
  const std::size_t pairs = frequencies_.size();
  job.share(pass.rows(), [&](Turn turn) {
    float* out = out_->row(turn.piece);
    const double position = pass.positions[static_cast<std::size_t>(turn.piece)];
    for (std::size_t i = 0; i < pairs; i++) {
      double sine, cosine;
      sine_cosine(position * frequencies_[i], &sine, &cosine);
      out[i] = static_cast<float>(cosine * magnitude_);
      out[pairs + i] = static_cast<float>(sine * magnitude_);
    }
  });
}

void sine_cosine(double x, double* sine, double* cosine) {
  // x = n * pi/2 + r, with pi/2 in three parts of 33 bits, so that n times the first two is exact (Cody and Waite).
  const double n = std::nearbyint(x * 6.36619772367581382433e-01);
  double r = x - n * 1.57079632673412561417e+00;
  r = r - n * 6.07710050630396597660e-11;
  r = r - n * 2.02226624879595063154e-21;
  const double z = r * r;
  double s = 1.58969099521155010221e-10;  // minimax polynomials on [-pi/4, pi/4]
  s = s * z - 2.50507602534068634195e-08;
  s = s * z + 2.75573137070700676789e-06;
  s = s * z - 1.98412698298579493134e-04;
  s = s * z + 8.33333333332248946124e-03;
  s = s * z - 1.66666666666666324348e-01;
  s = r + r * z * s;
  double c = -1.13596475577881948265e-11;
  c = c * z + 2.08757232129817482790e-09;
  c = c * z - 2.75573143513906633035e-07;
  c = c * z + 2.48015872894767294178e-05;
  c = c * z - 1.38888888888741095749e-03;
  c = c * z + 4.16666666666666019037e-02;
  c = 1.0 - (0.5 * z - z * z * c);
  switch (static_cast<long long>(n) & 3) {
    case 0:
      *sine = s, *cosine = c;
      return;
    case 1:
      *sine = c, *cosine = -s;
      return;
    case 2:
      *sine = -s, *cosine = -c;
      return;
    default:
      *sine = -c, *cosine = s;
  }
}

}  // namespace fucina
