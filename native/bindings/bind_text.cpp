#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings.h"
#include "text/spm.h"

namespace nb = nanobind;

namespace fucina::bindings {

namespace {

template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::vector<T> copied(const Column<T>& column) {
  return std::vector<T>(column.data(), column.data() + column.size());
}

constexpr std::size_t kLongText = 4096;  // bytes; from here on other Python threads may run meanwhile

std::vector<std::int32_t> encode(const text::SpmEncoder& encoder, const nb::bytes& text) {
  const std::string_view view(text.c_str(), text.size());
  if (view.size() < kLongText) return encoder.encode(view);
  nb::gil_scoped_release release;
  return encoder.encode(view);
}

}  // namespace

void bind_text(nb::module_& m) {
  nb::class_<text::SpmEncoder>(m, "SpmEncoder")
      .def(
          "__init__",
          [](text::SpmEncoder* self, const nb::bytes& storage, const Column<std::int64_t>& starts,
             const Column<std::int64_t>& ends, const Column<float>& scores, const Column<std::uint8_t>& types,
             std::int32_t unknown) {
            new (self) text::SpmEncoder(std::string(storage.c_str(), storage.size()), copied(starts), copied(ends),
                                        copied(scores), copied(types), unknown);
          },
          nb::arg("storage"), nb::arg("starts"), nb::arg("ends"), nb::arg("scores"), nb::arg("types"),
          nb::arg("unknown"))
      .def("encode", &encode, nb::arg("text"));
}

}  // namespace fucina::bindings
