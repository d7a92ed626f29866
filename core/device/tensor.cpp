#include "core/device/tensor.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace moetwin {

int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::f64:
    case DType::i64:
      return 8;
  }
  return 0;
}

const char* dtype_name(DType dtype) {
  constexpr const char* kNames[] = {"fp32", "bf16", "fp16", "fp64", "i32", "i64"};
  return kNames[static_cast<int>(dtype)];
}

DType parse_dtype(const std::string& name) {
  for (DType d : {DType::f32, DType::bf16, DType::f16, DType::f64})
    if (name == dtype_name(d)) return d;
  throw Error(ErrorClass::configuration,
              fmt::format("dtype \"{}\" is not known; legal: fp32, bf16, fp16, fp64", name));
}

const char* memory_class_name(MemoryClass memory_class) {
  constexpr const char* kNames[] = {"parameters",    "gradients", "optimizer", "activations",
                                    "communication", "router",    "workspace", "control"};
  return kNames[static_cast<int>(memory_class)];
}

Shape::Shape(std::initializer_list<int64_t> extents) {
  require(extents.size() <= 4, "a shape has at most four extents");
  for (int64_t e : extents) dims[static_cast<size_t>(rank++)] = e;
}

int64_t Shape::elements() const {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= dims[static_cast<size_t>(i)];
  return n;
}

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < rank; ++i)
    text += fmt::format("{}{}", i ? "," : "", dims[static_cast<size_t>(i)]);
  return text + "]";
}

Tensor Tensor::rows(int64_t first, int64_t count) const {
  require(shape.rank >= 1 && first >= 0 && count >= 0 && first + count <= shape[0],
          "row view out of range");
  Tensor view = *this;
  const int64_t row = shape[0] ? elements() / shape[0] : 0;
  view.shape.dims[0] = count;
  view.offset += first * row;
  return view;
}

Tensor Tensor::reshaped(const Shape& new_shape) const {
  require(new_shape.elements() == elements(), "reshape keeps the number of elements");
  Tensor view = *this;
  view.shape = new_shape;
  return view;
}

Tensor Tensor::slice(int64_t first, const Shape& new_shape) const {
  require(first >= 0 && first + new_shape.elements() <= elements(), "slice out of range");
  Tensor view = *this;
  view.shape = new_shape;
  view.offset += first;
  return view;
}

}  // namespace moetwin
