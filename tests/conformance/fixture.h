#pragma once
// What PyTorch computed (tests/fixtures/make_pytorch_fixtures.py).

#include <json/json.h>

#include "tests/conformance/machine.h"

namespace moetwin::conformance {

struct Fixture {
  Json::Value attributes, tensors;

  Values values(const char* name) const;
  Shape shape(const char* name) const;
  Tensor put(Machine& machine, const char* name, DType dtype) const {
    return machine.put(shape(name), dtype, values(name));
  }
  /// Zeros of that tensor's shape, for gradients that are added to.
  Tensor zeros(Machine& machine, const char* name, DType dtype) const {
    return machine.put(shape(name), dtype, Values(values(name).size(), 0.0));
  }
  Tensor empty(Machine& machine, const char* name, DType dtype) const {
    return machine.empty(shape(name), dtype);
  }
  double number(const char* name) const { return attributes[name].asDouble(); }
  int64_t integer(const char* name) const { return attributes[name].asInt64(); }
};
Fixture fixture(const char* name);

}  // namespace moetwin::conformance
