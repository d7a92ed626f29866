#include "core/ops/reference/block.h"

#include <bit>
#include <cstring>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace moetwin::reference {
namespace {

float from_bf16(uint16_t u) { return std::bit_cast<float>(static_cast<uint32_t>(u) << 16); }
uint16_t to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t nan = (u >> 16) | 0x40u;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}
void widen_f16(const uint16_t* in, int64_t n, float* out) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(out + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
#endif
  for (; i < n; ++i)
    out[i] = Eigen::half_impl::half_to_float(Eigen::half_impl::raw_uint16_to_half(in[i]));
}
void narrow_f16(const float* in, int64_t n, uint16_t* out) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (; i < n; ++i) out[i] = Eigen::half_impl::float_to_half_rtne(in[i]).x;
}
/// Rounds to odd, so that a second rounding to a 16-bit type is as good as one.
float to_odd(double d) {
  const float f = static_cast<float>(d);
  if (static_cast<double>(f) == d || !std::isfinite(f)) return f;
  uint32_t u = std::bit_cast<uint32_t>(f);
  if (std::abs(static_cast<double>(f)) > std::abs(d)) --u;
  return std::bit_cast<float>(u | 1u);
}
[[noreturn]] void not_real() {
  throw Error(ErrorClass::internal, "reference arithmetic: an integer operand where a real is due");
}

void read_float(const TensorView& v, int64_t first, int64_t n, float* out) {
  switch (v.dtype) {
    case DType::f32:
      std::memcpy(out, v.as<const float>() + first, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::bf16: {
      const uint16_t* p = v.as<const uint16_t>() + first;
      for (int64_t i = 0; i < n; ++i) out[i] = from_bf16(p[i]);
      return;
    }
    case DType::f16:
      return widen_f16(v.as<const uint16_t>() + first, n, out);
    case DType::f64: {
      const double* p = v.as<const double>() + first;
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(p[i]);
      return;
    }
    default:
      not_real();
  }
}
void write_float(const TensorView& v, int64_t first, int64_t n, const float* in) {
  switch (v.dtype) {
    case DType::f32:
      std::memcpy(v.as<float>() + first, in, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::bf16: {
      uint16_t* p = v.as<uint16_t>() + first;
      for (int64_t i = 0; i < n; ++i) p[i] = to_bf16(in[i]);
      return;
    }
    case DType::f16:
      return narrow_f16(in, n, v.as<uint16_t>() + first);
    case DType::f64: {
      double* p = v.as<double>() + first;
      for (int64_t i = 0; i < n; ++i) p[i] = static_cast<double>(in[i]);
      return;
    }
    default:
      not_real();
  }
}

}  // namespace

template <>
void read<float>(const TensorView& v, int64_t first, int64_t n, float* out) {
  read_float(v, first, n, out);
}
template <>
void write<float>(const TensorView& v, int64_t first, int64_t n, const float* in) {
  write_float(v, first, n, in);
}
template <>
void read<double>(const TensorView& v, int64_t first, int64_t n, double* out) {
  if (v.dtype == DType::f64) {
    std::memcpy(out, v.as<const double>() + first, static_cast<size_t>(n) * sizeof(double));
    return;
  }
  alignas(64) float part[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    read_float(v, first + i, m, part);
    for (int64_t j = 0; j < m; ++j) out[i + j] = part[j];
  }
}
template <>
void write<double>(const TensorView& v, int64_t first, int64_t n, const double* in) {
  if (v.dtype == DType::f64) {
    std::memcpy(v.as<double>() + first, in, static_cast<size_t>(n) * sizeof(double));
    return;
  }
  alignas(64) float part[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    for (int64_t j = 0; j < m; ++j)
      part[j] = v.dtype == DType::f32 ? static_cast<float>(in[i + j]) : to_odd(in[i + j]);
    write_float(v, first + i, m, part);
  }
}

template <class C>
void add_to(const TensorView& v, int64_t first, int64_t n, const C* in) {
  alignas(64) C part[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    if (is_plain<C>(v)) {
      C* p = v.as<C>() + first + i;
      for (int64_t j = 0; j < m; ++j) p[j] += in[i + j];
      continue;
    }
    read<C>(v, first + i, m, part);
    for (int64_t j = 0; j < m; ++j) part[j] += in[i + j];
    write<C>(v, first + i, m, part);
  }
}
template void add_to<float>(const TensorView&, int64_t, int64_t, const float*);
template void add_to<double>(const TensorView&, int64_t, int64_t, const double*);

}  // namespace moetwin::reference
