#pragma once
// Operands of any real type as arrays of the compute type C (float; double for fp64): what an op
// works on is widened on the way in and rounded to nearest even on the way out, a block at a time.

#include <algorithm>
#include <memory>
#include <new>

#include "core/base/error.h"
#include "core/device/op.h"
#include "core/ops/reference/packet.h"

namespace moetwin::reference {

inline constexpr int64_t kBlock = 1024;

inline int64_t elements(const TensorView& v) {
  int64_t n = 1;
  for (int i = 0; i < v.shape.rank; ++i) n *= v.shape[i];
  return n;
}
constexpr int64_t size_of(DType d) {
  return d == DType::bf16 || d == DType::f16 ? 2 : d == DType::f64 || d == DType::i64 ? 8 : 4;
}

/// n elements from `first` on, as C.
template <class C>
void read(const TensorView& v, int64_t first, int64_t n, C* out);
template <class C>
void write(const TensorView& v, int64_t first, int64_t n, const C* in);
/// v += in, rounded once.
template <class C>
void add_to(const TensorView& v, int64_t first, int64_t n, const C* in);

template <class C>
constexpr bool is_plain(const TensorView& v) {
  return v.dtype == (std::is_same_v<C, float> ? DType::f32 : DType::f64);
}
/// The elements themselves where they are of type C, else their copy in `buffer`.
template <class C>
const C* peek(const TensorView& v, int64_t first, int64_t n, C* buffer) {
  if (is_plain<C>(v)) return v.as<const C>() + first;
  read<C>(v, first, n, buffer);
  return buffer;
}

/// Memory an op uses while it runs; aligned, not cleared.
template <class C>
class Scratch {
 public:
  explicit Scratch(int64_t n)
      : data_(static_cast<C*>(::operator new (
            static_cast<size_t>(std::max<int64_t>(n, 1)) * sizeof(C), std::align_val_t{64}))) {}
  ~Scratch() { ::operator delete (data_, std::align_val_t{64}); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  C* get() const { return data_; }
  C& operator[](int64_t i) const { return data_[i]; }

 private:
  C* data_;
};

/// Calls f with a value of the compute type of `dtype`.
template <class F>
void with_compute(DType dtype, F f) {
  if (dtype == DType::f64)
    f(double{});
  else
    f(float{});
}

/// out[i] = f(in_0[i], in_1[i], ...) on packets, for n elements from `first` on; `out` may be one
/// of the inputs.
template <class C, int inputs, class F>
void map(const TensorView (&in)[inputs], const TensorView& out, int64_t first, int64_t n, F f) {
  alignas(64) C buffer[inputs][kBlock];
  alignas(64) C result[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    const int64_t padded = (m + kLanes<C> - 1) / kLanes<C> * kLanes<C>;
    for (int j = 0; j < inputs; ++j) {
      read<C>(in[j], first + i, m, buffer[j]);
      for (int64_t l = m; l < padded; ++l) buffer[j][l] = 0;
    }
    for (int64_t l = 0; l < padded; l += kLanes<C>) {
      Packet<C> x[inputs];
      for (int j = 0; j < inputs; ++j) x[j] = load<C>(buffer[j] + l);
      store<C>(result + l, f(x));
    }
    write<C>(out, first + i, m, result);
  }
}

}  // namespace moetwin::reference
