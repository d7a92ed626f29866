#pragma once
// What the ops' rows are written with: shape rules that allocate nothing while they hold, and
// kernels priced from shapes and host sizes alone.

#include <numeric>

#include "core/ops/table.h"

namespace moetwin {

/// The shape and dtype rule of one call. Absent optional operands pass every rule. Each failure
/// throws Error(internal) naming op, operand, what was wanted and the shapes of all operands.
class Check {
 public:
  /// Also checks that every required operand is present.
  explicit Check(const OpCall& call);

  bool has(int i) const { return call_[i].defined(); }
  int64_t extent(int operand, int axis) const { return call_[operand].shape[axis]; }
  /// Extents of all axes but the last, multiplied; and the last.
  int64_t leading(int i) const;
  int64_t last(int i) const { return call_[i].shape[call_[i].shape.rank - 1]; }

  void rank(int i, int wanted) const {
    if (has(i) && call_[i].shape.rank != wanted) bad_rank(i, wanted);
  }
  void shape(int i, std::initializer_list<int64_t> wanted) const;
  void same_shape(int i, int as) const {
    if (has(i) && !(call_[i].shape == call_[as].shape)) bad_shape(i, call_[as].shape);
  }
  void dtype(int i, DType wanted) const {
    if (has(i) && call_[i].dtype != wanted) bad_dtype(i, dtype_name(wanted));
  }
  /// A floating-point type.
  void real(int i) const {
    if (has(i) && (call_[i].dtype == DType::i32 || call_[i].dtype == DType::i64))
      bad_dtype(i, "a real type");
  }
  /// The dtype of another operand, or what its sums are kept in: weights and their gradients.
  void same_or_real(int i, int as) const {
    const DType d = call_[as].dtype;
    if (has(i) && call_[i].dtype != d && call_[i].dtype != real_dtype(d))
      bad_dtype(i, "that of the activations or of their sums");
  }
  void real_of(int i, int as) const { dtype(i, real_dtype(call_[as].dtype)); }
  /// A rule on attributes or host sizes, in words.
  void that(bool holds, const char* rule) const {
    if (!holds) broken(rule);
  }
  /// One host size per group, none negative, their sum at most `limit`.
  void host_rows(int64_t groups, int64_t limit) const;

 private:
  [[noreturn]] void bad_rank(int i, int wanted) const;
  [[noreturn]] void bad_shape(int i, const Shape& wanted) const;
  [[noreturn]] void bad_dtype(int i, const char* wanted) const;
  [[noreturn]] void broken(const char* rule) const;
  [[noreturn]] void fail(const std::string& what) const;
  const OpCall& call_;
};

constexpr int index_of(OpIndex op) { return static_cast<int>(op); }

/// Bytes the operands move: each counted once where it is read and once where it is written.
double traffic(const OpCall& call);
inline double bytes_of(const Tensor& t) {
  return t.defined() ? static_cast<double>(t.bytes()) : 0.0;
}
inline double elements_of(const Tensor& t) {
  return t.defined() ? static_cast<double>(t.elements()) : 0.0;
}

/// A kernel that is no matrix product.
inline KernelWork simple_kernel(KernelKind kind, DType dtype, double flop, double bytes) {
  KernelWork w;
  w.kind = kind;
  w.dtype = dtype;
  w.flop = flop;
  w.bytes = bytes;
  return w;
}
inline KernelWork gemm_kernel(DType dtype, int64_t m, int64_t n, int64_t k, int64_t batch,
                              double bytes) {
  KernelWork w = simple_kernel(KernelKind::gemm, dtype,
                               2.0 * static_cast<double>(m) * static_cast<double>(n) *
                                   static_cast<double>(k) * static_cast<double>(batch),
                               bytes);
  w.m = m;
  w.n = n;
  w.k = k;
  w.batch = batch;
  return w;
}
inline int64_t no_workspace(const OpCall&) { return 0; }

inline int64_t sum_of(const HostSizes& sizes) {
  return sizes ? std::accumulate(sizes->begin(), sizes->end(), int64_t{0}) : 0;
}

}  // namespace moetwin
