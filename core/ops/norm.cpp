#include "core/ops/norm.h"

#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kForward[] = {{"x", Access::read},           {"gamma", Access::read},
                                {"beta", Access::read, true},  {"y", Access::write},
                                {"mean", Access::write, true}, {"rstd", Access::write}};
constexpr Operand kBackward[] = {{"x", Access::read},
                                 {"gamma", Access::read},
                                 {"mean", Access::read, true},
                                 {"rstd", Access::read},
                                 {"dy", Access::read},
                                 {"dx", Access::write},
                                 {"d_gamma", Access::read_write},
                                 {"d_beta", Access::read_write, true}};

void check_common(const OpCall& c, const Check& check, int gamma, int mean, int rstd) {
  const bool layer = c.get<NormAttr>().kind == NormKind::layer;
  check.rank(0, 2);
  const int64_t rows = check.extent(0, 0), h = check.extent(0, 1);
  check.real(0);
  check.shape(gamma, {h});
  check.same_or_real(gamma, 0);
  check.that(check.has(mean) == layer, "mean is kept by the layer norm and only there");
  for (int i : {mean, rstd}) check.shape(i, {rows}), check.real_of(i, 0);
}
void check_forward(const OpCall& c) {
  const Check check(c);
  check_common(c, check, 1, 4, 5);
  check.shape(2, {check.extent(0, 1)});
  check.same_or_real(2, 0);
  check.same_shape(3, 0);
  check.dtype(3, c[0].dtype);
}
void check_backward(const OpCall& c) {
  const Check check(c);
  check_common(c, check, 1, 2, 3);
  for (int i : {4, 5}) check.same_shape(i, 0), check.dtype(i, c[0].dtype);
  for (int i : {6, 7}) check.shape(i, {check.extent(0, 1)}), check.same_or_real(i, 0);
}

/// Hugging Face's and torchtitan's older RMSNorm is written out: square-mean, scale, times gamma,
/// on f32 copies.
bool written_out(const OpCall& c, const KernelChoice& choice) {
  return choice == KernelClass::torch_fsdp && c.get<NormAttr>().kind == NormKind::rms;
}
void kernels_forward(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const double n = elements_of(c[0]), x = bytes_of(c[0]);
  const DType d = c[0].dtype;
  if (!written_out(c, choice)) {
    out.push_back(simple_kernel(KernelKind::reduction, d, 8 * n, traffic(c)));
    return;
  }
  out.push_back(simple_kernel(KernelKind::reduction, DType::f32, 2 * n, x + bytes_of(c[5])));
  out.push_back(simple_kernel(KernelKind::elementwise, DType::f32, n, 2 * x + bytes_of(c[5])));
  out.push_back(simple_kernel(KernelKind::elementwise, d, n, 2 * x + bytes_of(c[1])));
}
/// The copy in f32, and the normalised rows before gamma.
int64_t saved_forward(const OpCall& c, const KernelChoice& choice) {
  return written_out(c, choice) ? 4 * c[0].elements() + c[0].bytes() : 0;
}
void kernels_backward(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const double n = elements_of(c[0]), x = bytes_of(c[0]),
               statistics = bytes_of(c[2]) + bytes_of(c[3]);
  const double weights = bytes_of(c[1]) + 2 * (bytes_of(c[6]) + bytes_of(c[7]));
  const DType d = c[0].dtype;
  if (choice == KernelClass::moetwin) {
    out.push_back(simple_kernel(KernelKind::reduction, d, 14 * n, traffic(c)));
    return;
  }
  // Two passes everywhere: the gradient of the rows, then that of the weights.
  out.push_back(simple_kernel(KernelKind::reduction, d, 9 * n, 3 * x + statistics));
  out.push_back(simple_kernel(KernelKind::reduction, d, 5 * n, 2 * x + statistics + weights));
  if (written_out(c, choice)) {
    out.push_back(simple_kernel(KernelKind::elementwise, DType::f32, 2 * n, 3 * x));
    out.push_back(simple_kernel(KernelKind::elementwise, DType::f32, 2 * n, 3 * x));
  }
}

}  // namespace

constinit const Op op_norm = {"norm",        index_of(OpIndex::norm), kForward,
                              check_forward, kernels_forward,         no_workspace,
                              saved_forward};
constinit const Op op_norm_backward = {"norm_backward",  index_of(OpIndex::norm_backward),
                                       kBackward,        check_backward,
                                       kernels_backward, no_workspace};

OpCall norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& y,
            const Tensor& mean, const Tensor& rstd, NormAttr attr) {
  return make_call(op_norm, {x, gamma, beta, y, mean, rstd}, attr);
}
OpCall norm_backward(const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& rstd,
                     const Tensor& dy, const Tensor& dx, const Tensor& d_gamma,
                     const Tensor& d_beta, NormAttr attr) {
  return make_call(op_norm_backward, {x, gamma, mean, rstd, dy, dx, d_gamma, d_beta}, attr);
}

}  // namespace moetwin
