// Cross-entropy over a vocabulary that is split over ranks, without gathering logits.

#include "core/ops/loss.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kStatistics[] = {
    {"logits", Access::read}, {"targets", Access::read}, {"statistics", Access::write}};
constexpr Operand kLoss[] = {{"logits", Access::read_write},
                             {"targets", Access::read},
                             {"statistics", Access::read},
                             {"sums", Access::read_write}};

void check_part(const Check& check, const VocabPartAttr& a) {
  check.rank(0, 2);
  check.real(0);
  check.shape(1, {check.extent(0, 0)});
  check.dtype(1, DType::i32);
  check.real_of(2, 0);
  check.that(a.first >= 0 && a.classes >= 0 && a.first + a.classes <= a.vocabulary &&
                 a.classes <= check.extent(0, 1),
             "the part's classes lie in the vocabulary and in the columns");
}
void check_statistics(const OpCall& c) {
  const Check check(c);
  check_part(check, c.get<VocabPartAttr>());
  check.shape(2, {3, check.extent(0, 0)});
}
void check_loss(const OpCall& c) {
  const Check check(c);
  const auto a = c.get<VocabCrossEntropyAttr>();
  check_part(check, a.part);
  check.shape(2, {3 * a.parts, check.extent(0, 0)});
  check.shape(3, {2});
  check.real_of(3, 0);
  check.that(a.parts >= 1, "at least one part");
}

void kernels_statistics(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const double n = elements_of(c[0]), x = bytes_of(c[0]), wide = 4 * n;
  const double small = bytes_of(c[1]) + bytes_of(c[2]);
  const DType d = c[0].dtype;
  if (choice == KernelClass::moetwin) {
    out.push_back(simple_kernel(KernelKind::reduction, d, 4 * n, x + small));
    return;
  }
  // On an f32 copy: max, subtract, exp, sum.
  out.push_back(simple_kernel(KernelKind::elementwise, d, 0, x + wide));
  out.push_back(simple_kernel(KernelKind::reduction, DType::f32, n, wide));
  out.push_back(simple_kernel(KernelKind::elementwise, DType::f32, n, 2 * wide));
  out.push_back(simple_kernel(KernelKind::elementwise, DType::f32, 4 * n, 2 * wide));
  out.push_back(simple_kernel(KernelKind::reduction, DType::f32, n, wide + small));
}
void kernels_loss(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const bool gradient = c.get<VocabCrossEntropyAttr>().gradient_scale != 0;
  const double n = elements_of(c[0]), x = bytes_of(c[0]), wide = 4 * n;
  const double small = bytes_of(c[1]) + bytes_of(c[2]) + 2 * bytes_of(c[3]);
  const DType d = c[0].dtype;
  const double tokens = 8 * elements_of(c[1]);
  if (choice == KernelClass::moetwin) {
    out.push_back(simple_kernel(KernelKind::reduction, d, tokens + (gradient ? 4 * n : 0),
                                small + (gradient ? 2 * x : 0)));
    return;
  }
  out.push_back(simple_kernel(KernelKind::reduction, DType::f32, tokens, small));
  if (!gradient) return;
  // The kept probabilities divided, the target's one taken off, scaled, and narrowed.
  out.push_back(simple_kernel(KernelKind::elementwise, DType::f32, n, 2 * wide));
  out.push_back(simple_kernel(KernelKind::elementwise, DType::f32, n, 2 * wide));
  out.push_back(simple_kernel(KernelKind::elementwise, d, 0, wide + x));
}

/// While it runs: the logits in f32, and their softmax.
int64_t saved_loss(const OpCall& c, const KernelChoice& choice) {
  // PyTorch's backward holds the logarithms, their gradient and that of the logits at once, in f32;
  // Megatron's works in place.
  const int64_t bytes = choice == KernelClass::torch_fsdp ? 12 : 8;
  return choice == KernelClass::moetwin ? 0 : bytes * c[0].elements();
}

}  // namespace

constinit const Op op_vocab_statistics = {"vocab_statistics", index_of(OpIndex::vocab_statistics),
                                          kStatistics,        check_statistics,
                                          kernels_statistics, no_workspace};
constinit const Op op_vocab_cross_entropy = {"vocab_cross_entropy",
                                             index_of(OpIndex::vocab_cross_entropy),
                                             kLoss,
                                             check_loss,
                                             kernels_loss,
                                             no_workspace,
                                             saved_loss};

OpCall vocab_statistics(const Tensor& logits, const Tensor& targets, const Tensor& statistics,
                        VocabPartAttr attr) {
  return make_call(op_vocab_statistics, {logits, targets, statistics}, attr);
}
OpCall vocab_cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& statistics,
                           const Tensor& sums, VocabCrossEntropyAttr attr) {
  return make_call(op_vocab_cross_entropy, {logits, targets, statistics, sums}, attr);
}

}  // namespace moetwin
