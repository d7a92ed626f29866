#pragma once
// Quantities that must not be confused with each other. Each wraps one number in the base unit and
// allows only the arithmetic that keeps units right; `value` is for output and for formulas that
// state their units.

#include <compare>
#include <cstdint>
#include <string>

namespace moetwin {

template <class Tag>
struct Quantity {
  double value = 0;
  constexpr Quantity() = default;
  constexpr explicit Quantity(double v) : value(v) {}
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity o) {
    value += o.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    value -= o.value;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value + b.value);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value - b.value);
  }
  friend constexpr Quantity operator*(Quantity a, double f) { return Quantity(a.value * f); }
  friend constexpr Quantity operator*(double f, Quantity a) { return Quantity(a.value * f); }
  friend constexpr Quantity operator/(Quantity a, double f) { return Quantity(a.value / f); }
  friend constexpr double operator/(Quantity a, Quantity b) { return a.value / b.value; }
};

using Seconds = Quantity<struct SecondsTag>;
using Bytes = Quantity<struct BytesTag>;
using Flop = Quantity<struct FlopTag>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag>;
using FlopPerSecond = Quantity<struct FlopPerSecondTag>;

constexpr Seconds operator/(Bytes b, BytesPerSecond r) { return Seconds(b.value / r.value); }
constexpr Seconds operator/(Flop f, FlopPerSecond r) { return Seconds(f.value / r.value); }
constexpr Bytes operator*(BytesPerSecond r, Seconds s) { return Bytes(r.value * s.value); }
constexpr BytesPerSecond operator/(Bytes b, Seconds s) { return BytesPerSecond(b.value / s.value); }
constexpr FlopPerSecond operator/(Flop f, Seconds s) { return FlopPerSecond(f.value / s.value); }

/// "1.50 GiB", "312 B": binary prefixes, always with the unit.
std::string format_bytes(double bytes);
/// "1.50 ms", "12.0 s".
std::string format_seconds(double seconds);
/// "12.3k", "1.20M": plain counts with decimal prefixes.
std::string format_count(double count);

}  // namespace moetwin
