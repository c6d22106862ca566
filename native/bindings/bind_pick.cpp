#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bindings.h"
#include "pick/pick.h"

namespace nb = nanobind;

namespace fucina::bindings {

namespace {

using Row = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableRow = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Hands a vector over to a NumPy array that owns it.
template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T>&& values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return {kept->data(), {kept->size()}, owner};
}

pick::Bitmask bitmask(const Words& words) { return {words.data(), words.shape(0)}; }

nb::object top_k(Row row, std::size_t k, std::optional<Words> allowed) {
  std::vector<std::int32_t> ids;
  std::vector<float> values;
  const bool sound = allowed ? pick::top_k_allowed(row.data(), row.shape(0), bitmask(*allowed), k, ids, values)
                             : pick::top_k(row.data(), row.shape(0), k, ids, values);
  if (!sound) return nb::none();
  return nb::make_tuple(to_numpy(std::move(ids)), to_numpy(std::move(values)));
}

}  // namespace

void bind_pick(nb::module_& m) {
  m.def(
      "argmax", [](Row row) { return pick::argmax(row.data(), row.shape(0)); }, nb::arg("row").noconvert(),
      "The lowest id of the greatest logit of a row (vocab,) f32; -1 if the row holds NaN or +inf.");
  m.def("top_k", &top_k, nb::arg("row").noconvert(), nb::arg("k"), nb::arg("allowed").noconvert() = nb::none(),
        "(ids (k,) i32, logits (k,) f32) of the k greatest logits above -inf, greatest first, ties to the lower id; "
        "None if the row holds NaN or +inf. `allowed`: as if apply_bitmask had been there before.");
  m.def(
      "exp_sum",
      [](Row row, float best, double inverse_temperature, std::optional<Words> allowed) {
        return allowed ? pick::exp_sum_allowed(row.data(), row.shape(0), bitmask(*allowed), best, inverse_temperature)
                       : pick::exp_sum(row.data(), row.shape(0), best, inverse_temperature);
      },
      nb::arg("row").noconvert(), nb::arg("best"), nb::arg("inverse_temperature"),
      nb::arg("allowed").noconvert() = nb::none(),
      "Sum of exp((logit - best) * inverse_temperature) over a row (vocab,) f32. `allowed`: as if apply_bitmask had "
      "been there before.");
  m.def(
      "draw",
      [](Row values, double inverse_temperature, double total, double top_p, double min_p, double uniform,
         bool complete) {
        return pick::draw(values.data(), values.shape(0),
                          {inverse_temperature, total, top_p, min_p, uniform, complete});
      },
      nb::arg("values").noconvert(), nb::arg("inverse_temperature"), nb::arg("total"), nb::arg("top_p"),
      nb::arg("min_p"), nb::arg("uniform"), nb::arg("complete"),
      "Index drawn from a window of descending logits, or -1 if the window is too short to tell.");
  m.def(
      "penalize",
      [](MutableRow row, std::vector<std::int64_t> window, double repeat, double frequency, double presence) {
        pick::penalize(row.data(), row.shape(0), std::move(window), repeat, frequency, presence);
      },
      nb::arg("row").noconvert(), nb::arg("window"), nb::arg("repeat"), nb::arg("frequency"), nb::arg("presence"),
      "Lower, in place, the logits (vocab,) f32 of the tokens in the window.");
  m.def(
      "apply_bitmask",
      [](MutableRow row, Words words) { pick::apply_bitmask(row.data(), row.shape(0), bitmask(words)); },
      nb::arg("row").noconvert(), nb::arg("words").noconvert(),
      "Put -inf, in place, where a token's bit is 0 and past the last word.");
}

}  // namespace fucina::bindings
