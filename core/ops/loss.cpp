#include "core/ops/loss.h"

#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kOperands[] = {
    {"logits", Access::read_write}, {"targets", Access::read}, {"sums", Access::read_write}};

void check(const OpCall& c) {
  const Check check(c);
  check.rank(0, 2);
  check.real(0);
  check.shape(1, {check.extent(0, 0)});
  check.dtype(1, DType::i32);
  check.shape(2, {2});
  check.real_of(2, 0);
  check.that(check.extent(0, 1) >= 1, "at least one class");
}
void kernels(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const bool gradient = c.get<CrossEntropyAttr>().gradient_scale != 0;
  const double n = elements_of(c[0]), x = bytes_of(c[0]), wide = 4 * n;
  const double small = bytes_of(c[1]) + 2 * bytes_of(c[2]);
  const DType d = c[0].dtype;
  if (choice == KernelClass::moetwin) {
    out.push_back(simple_kernel(KernelKind::reduction, d, (gradient ? 8 : 6) * n,
                                (gradient ? 2 : 1) * x + small));
    return;
  }
  if (choice == KernelClass::megatron_2021) {
    // Vocabulary-parallel cross-entropy on an f32 copy: max, subtract, exp, sum, divide.
    out.push_back(simple_kernel(KernelKind::elementwise, d, 0, x + wide));
    out.push_back(simple_kernel(KernelKind::reduction, DType::f32, n, wide));
    out.push_back(simple_kernel(KernelKind::elementwise, DType::f32, n, 2 * wide));
    out.push_back(simple_kernel(KernelKind::elementwise, DType::f32, 4 * n, 2 * wide));
    out.push_back(simple_kernel(KernelKind::reduction, DType::f32, n, wide));
    out.push_back(simple_kernel(KernelKind::elementwise, DType::f32, n, 2 * wide));
  } else {
    // A fused softmax on an f32 copy (log_softmax and nll_loss; Megatron's jitted loss).
    out.push_back(simple_kernel(KernelKind::elementwise, d, 0, x + wide));
    out.push_back(simple_kernel(KernelKind::reduction, DType::f32, 6 * n, 2 * wide));
    out.push_back(simple_kernel(KernelKind::reduction, DType::f32, 0, small));
  }
  if (gradient) {
    out.push_back(simple_kernel(KernelKind::elementwise, DType::f32, 2 * n, 2 * wide));
    out.push_back(simple_kernel(KernelKind::elementwise, d, 0, wide + x));
  }
}

/// While it runs: the logits in f32, and their softmax or its gradient.
int64_t saved(const OpCall& c, const KernelChoice& choice) {
  const int64_t bytes = choice == KernelClass::torch_fsdp ? 12 : 8;  // as in vocab_loss.cpp
  return choice == KernelClass::moetwin ? 0 : bytes * c[0].elements();
}

}  // namespace

constinit const Op op_cross_entropy = {"cross_entropy",
                                       index_of(OpIndex::cross_entropy),
                                       kOperands,
                                       check,
                                       kernels,
                                       no_workspace,
                                       saved};

OpCall cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& sums,
                     CrossEntropyAttr attr) {
  return make_call(op_cross_entropy, {logits, targets, sums}, attr);
}

}  // namespace moetwin
