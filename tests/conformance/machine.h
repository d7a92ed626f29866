#pragma once
// One suite for every backend: a case makes inputs on a machine, launches builders, reads results
// and compares them with plain loops in double. Which machines are under test is what the program
// links: inline_machines.cpp runs the reference arithmetic of every instruction set at once.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device/allocator.h"
#include "core/device/backend.h"

namespace moetwin::conformance {

using Values = std::vector<double>;

/// A backend with an allocator that poisons every new buffer with NaN.
class Machine {
 public:
  /// `by_library`: products are a library's and a matrix unit's, as on a GPU: 16-bit values are
  /// rounded once more between the steps of an op, and the bits of a row may depend on what it is
  /// batched with.
  Machine(std::string name, std::unique_ptr<Backend> backend, std::vector<DType> real_types,
          bool by_library = false);

  const std::string& name() const { return name_; }
  Backend& backend() { return *backend_; }
  /// The floating-point types this machine has.
  const std::vector<DType>& real_types() const { return real_types_; }
  bool by_library() const { return by_library_; }

  Tensor empty(const Shape& shape, DType dtype);
  /// Values rounded to nearest even in `dtype`; integers are cut.
  Tensor put(const Shape& shape, DType dtype, const Values& values);
  Values get(const Tensor& tensor);
  void launch(const OpCall& call) { backend_->launch(call, stream_); }

 private:
  std::string name_;
  std::unique_ptr<Backend> backend_;
  std::vector<DType> real_types_;
  bool by_library_;
  Stream stream_;
  Allocator allocator_;
};

/// Defined by what the program links.
std::vector<std::unique_ptr<Machine>> machines_under_test();

/// Runs the body on every machine; with `types`, once for each of its real types.
void on_each(const std::function<void(Machine&)>& body);
void on_each_type(const std::function<void(Machine&, DType)>& body);

/// x as `dtype` holds it.
double rounded(double x, DType dtype);
Values rounded(Values x, DType dtype);
/// Half a unit in the last place, relative.
double half_ulp(DType dtype);

/// Deterministic values in [-scale, scale], different for every seed.
Values draw(int64_t n, uint64_t seed, double scale = 1);
HostSizes sizes(std::vector<int64_t> values);
void append(Values& to, const Values& more);

/// What may differ: |got - want| <= rel * |want| + abs.
struct Tolerance {
  double rel = 0, abs = 0;
};
/// `terms` summed products or steps of values up to `size`, then one rounding to `dtype`.
Tolerance tolerance(DType dtype, double terms = 1, double size = 1);
/// `t`, and on a machine by_library() one more rounding to `dtype` of values up to `size`.
Tolerance with_rounding(Tolerance t, const Machine& machine, DType dtype, double size);
/// Fails the running test with the first difference, or passes one assertion.
void expect(const Values& got, const Values& want, Tolerance t, const char* what);
void expect_equal(const Values& got, const Values& want, const char* what);

}  // namespace moetwin::conformance
