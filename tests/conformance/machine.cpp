#include "tests/conformance/machine.h"

#include <fmt/format.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "core/base/philox.h"

namespace moetwin::conformance {
namespace {

/// To `bits` of mantissa after the leading one, with the smallest exponent of the type; ties to
/// even.
double round_to(double x, int bits, int least_exponent) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), least_exponent);
  return std::ldexp(std::nearbyint(std::ldexp(x, bits - exponent)), exponent - bits);
}

uint16_t bf16_bits(double x) {
  const float f = static_cast<float>(rounded(x, DType::bf16));
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(f) >> 16);
}
uint16_t f16_bits(double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double a = std::abs(rounded(x, DType::f16));
  if (std::isnan(x)) return 0x7e00;
  if (std::isinf(a)) return static_cast<uint16_t>(sign | 0x7c00);
  if (a < std::ldexp(1.0, -14))
    return static_cast<uint16_t>(sign | static_cast<int>(std::ldexp(a, 24)));
  const int e = std::ilogb(a);
  const int mantissa = static_cast<int>(std::ldexp(a, 10 - e)) - 1024;
  return static_cast<uint16_t>(sign | ((e + 15) << 10) | mantissa);
}
double f16_value(uint16_t u) {
  const double sign = u & 0x8000 ? -1 : 1;
  const int e = (u >> 10) & 31, m = u & 1023;
  if (e == 31) return m ? std::nan("") : sign * HUGE_VAL;
  return sign * (e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24));
}

}  // namespace

Machine::Machine(std::string name, std::unique_ptr<Backend> backend, std::vector<DType> real_types,
                 bool by_library)
    : name_(std::move(name)),
      backend_(std::move(backend)),
      real_types_(std::move(real_types)),
      by_library_(by_library),
      stream_(backend_->stream("conformance")),
      allocator_(*backend_, true) {}

Tensor Machine::empty(const Shape& shape, DType dtype) {
  return allocator_.allocate(shape, dtype, MemoryClass::control, "conformance", stream_);
}

Tensor Machine::put(const Shape& shape, DType dtype, const Values& values) {
  REQUIRE(shape.elements() == static_cast<int64_t>(values.size()));
  const Tensor t = empty(shape, dtype);
  std::vector<char> bytes(values.size() * static_cast<size_t>(dtype_size(dtype)) + 1);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto place = [&](auto v) { std::memcpy(bytes.data() + i * sizeof v, &v, sizeof v); };
    switch (dtype) {
      case DType::f32:
        place(static_cast<float>(values[i]));
        break;
      case DType::f64:
        place(values[i]);
        break;
      case DType::bf16:
        place(bf16_bits(values[i]));
        break;
      case DType::f16:
        place(f16_bits(values[i]));
        break;
      case DType::i32:
        place(static_cast<int32_t>(values[i]));
        break;
      case DType::i64:
        place(static_cast<int64_t>(values[i]));
        break;
    }
  }
  backend_->write(t, bytes.data(), stream_);
  return t;
}

Values Machine::get(const Tensor& t) {
  const size_t n = static_cast<size_t>(t.elements());
  std::vector<char> bytes(n * static_cast<size_t>(dtype_size(t.dtype)) + 1);
  backend_->read(t, bytes.data(), stream_);
  Values values(n);
  for (size_t i = 0; i < n; ++i) {
    const auto value = [&]<class T>(T v) {
      std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v);
      return v;
    };
    switch (t.dtype) {
      case DType::f32:
        values[i] = static_cast<double>(value(float{}));
        break;
      case DType::f64:
        values[i] = value(double{});
        break;
      case DType::bf16:
        values[i] = static_cast<double>(
            std::bit_cast<float>(static_cast<uint32_t>(value(uint16_t{})) << 16));
        break;
      case DType::f16:
        values[i] = f16_value(value(uint16_t{}));
        break;
      case DType::i32:
        values[i] = static_cast<double>(value(int32_t{}));
        break;
      case DType::i64:
        values[i] = static_cast<double>(value(int64_t{}));
        break;
    }
  }
  return values;
}

void on_each(const std::function<void(Machine&)>& body) {
  for (const std::unique_ptr<Machine>& machine : machines_under_test()) {
    INFO("machine " << machine->name());
    body(*machine);
  }
}
void on_each_type(const std::function<void(Machine&, DType)>& body) {
  on_each([&](Machine& machine) {
    for (DType dtype : machine.real_types()) {
      INFO("dtype " << dtype_name(dtype));
      body(machine, dtype);
    }
  });
}

double rounded(double x, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(static_cast<float>(x));
    case DType::bf16:
      return round_to(x, 7, -126);
    case DType::f16: {
      const double y = round_to(x, 10, -14);
      return std::abs(y) > 65504 ? std::copysign(HUGE_VAL, y) : y;
    }
    default:
      return x;
  }
}
Values rounded(Values x, DType dtype) {
  for (double& v : x) v = rounded(v, dtype);
  return x;
}
double half_ulp(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return std::ldexp(1.0, -24);
    case DType::bf16:
      return std::ldexp(1.0, -8);
    case DType::f16:
      return std::ldexp(1.0, -11);
    default:
      return std::ldexp(1.0, -53);
  }
}

Values draw(int64_t n, uint64_t seed, double scale) {
  Values x(static_cast<size_t>(n));
  const PhiloxKey key = philox_key(seed, Purpose::probe, 0, 0);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = scale * (2 * static_cast<double>(philox_uniform(key, i)) - 1);
  return x;
}
void append(Values& to, const Values& more) {
  for (double v : more) to.push_back(v);
}
HostSizes sizes(std::vector<int64_t> values) {
  return std::make_shared<const std::vector<int64_t>>(std::move(values));
}

Tolerance tolerance(DType dtype, double terms, double size) {
  // Sums are kept in fp32 (fp64 for fp64) with a few units of error a step; the result is rounded
  // once to its own type, half a unit (a whole one is allowed: the two roundings may disagree).
  const double step = 4 * half_ulp(real_dtype(dtype));
  return {2 * half_ulp(dtype) + step * 4, step * terms * size};
}
Tolerance with_rounding(Tolerance t, const Machine& machine, DType dtype, double size) {
  if (machine.by_library() && dtype != real_dtype(dtype)) t.abs += 2 * half_ulp(dtype) * size;
  return t;
}
void expect(const Values& got, const Values& want, Tolerance t, const char* what) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - want[i]) <= t.rel * std::abs(want[i]) + t.abs)) {
      FAIL_CHECK(fmt::format("{}[{}]: got {:.9g}, want {:.9g}, off by {:.3g}, allowed {:.3g}", what,
                             i, got[i], want[i], got[i] - want[i],
                             t.rel * std::abs(want[i]) + t.abs));
      return;
    }
  CHECK(true);
}
void expect_equal(const Values& got, const Values& want, const char* what) {
  expect(got, want, {}, what);
}

}  // namespace moetwin::conformance
