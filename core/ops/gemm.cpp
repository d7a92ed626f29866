#include "core/ops/gemm.h"

#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kGemm[] = {{"a", Access::read},
                             {"b", Access::read},
                             {"bias", Access::read, true},
                             {"c", Access::write},
                             {"pre", Access::write, true}};
constexpr Operand kBiasGrad[] = {{"dy", Access::read}, {"d_bias", Access::read_write}};
constexpr double kFlopGelu = 30;

void check_gemm(const OpCall& call) {
  const Check check(call);
  const auto attr = call.get<GemmAttr>();
  check.rank(0, 2);
  check.rank(1, 2);
  const int64_t m = check.extent(0, attr.transpose_a ? 1 : 0);
  const int64_t k = check.extent(0, attr.transpose_a ? 0 : 1);
  const int64_t n = check.extent(1, attr.transpose_b ? 0 : 1);
  if (attr.transpose_b)
    check.shape(1, {n, k});
  else
    check.shape(1, {k, n});
  check.shape(2, {n});
  check.shape(3, {m, n});
  check.shape(4, {m, n});
  check.real(0);
  check.dtype(1, call[0].dtype);
  check.same_or_real(2, 0);
  check.same_or_real(3, 0);
  check.same_or_real(4, 0);
  check.that(!attr.accumulate || (attr.epilogue == Epilogue::none && !check.has(4)),
             "accumulate goes with neither an epilogue nor pre");
}

/// One kernel reads a 16-bit operand and writes it in FP8, once as it lies and once transposed for
/// the weight gradient (Transformer Engine's cast_transpose).
KernelWork cast_to_fp8(const Tensor& x) {
  return simple_kernel(KernelKind::elementwise, x.dtype, 2 * elements_of(x),
                       bytes_of(x) + 2 * elements_of(x));
}

void kernels_gemm(const OpCall& call, const KernelChoice& choice, KernelList& out) {
  const auto attr = call.get<GemmAttr>();
  const int64_t m = call[3].shape[0], n = call[3].shape[1];
  const int64_t k = call[0].shape[attr.transpose_a ? 0 : 1];
  const DType d = call[0].dtype;
  const double c = bytes_of(call[3]), bias = bytes_of(call[2]), n_out = elements_of(call[3]);
  const bool fp8 = choice.fp8_products && dtype_size(d) == 2;
  const double operands = (fp8 ? 0.5 : 1) * (bytes_of(call[0]) + bytes_of(call[1]));
  const double product = operands + (attr.accumulate ? 2 : 1) * c;
  const bool activation = attr.epilogue != Epilogue::none;
  if (attr.accumulate && choice == KernelClass::megatron_2021 && d == DType::bf16) {
    // DeepSpeed's BF16_Optimizer takes gradients in 16 bit and adds them to those in fp32 with a
    // kernel of its own after each backward.
    out.push_back(gemm_kernel(d, m, n, k, 1, operands + 2 * n_out));
    out.push_back(simple_kernel(KernelKind::elementwise, d, n_out, (2 + 2 * 4) * n_out));
    return;
  }
  const auto add_product = [&](double bytes) {
    out.push_back(gemm_kernel(d, m, n, k, 1, bytes));
    out.back().fp8 = fp8;
  };
  // A weight gradient finds both its operands cast already; weights are cast once a step.
  if (fp8 && !attr.transpose_a) out.push_back(cast_to_fp8(call[0]));
  if (choice == KernelClass::moetwin) {
    add_product(product + bias + bytes_of(call[4]));
    return;
  }
  // Megatron fuses the bias with the activation that follows; PyTorch puts it into cuBLASLt's
  // epilogue (before 2022: copies it into c and accumulates). The activation is its own kernel.
  const bool bias_first = call[2].defined() && !activation;
  if (bias_first && choice == KernelClass::megatron_2021) {
    out.push_back(simple_kernel(KernelKind::elementwise, d, 0, c + bias));
    add_product(product + c);
    return;
  }
  const bool in_epilogue = bias_first || choice == KernelClass::torch_fsdp;
  add_product(product + (in_epilogue ? bias : 0));
  if (activation)
    out.push_back(simple_kernel(KernelKind::elementwise, d, kFlopGelu * n_out,
                                2 * c + (in_epilogue ? 0 : bias)));
}

void check_bias_grad(const OpCall& call) {
  const Check check(call);
  check.rank(0, 2);
  check.shape(1, {check.extent(0, 1)});
  check.real(0);
  check.same_or_real(1, 0);
}
void kernels_bias_grad(const OpCall& call, const KernelChoice&, KernelList& out) {
  out.push_back(
      simple_kernel(KernelKind::reduction, call[0].dtype, elements_of(call[0]), traffic(call)));
}

}  // namespace

constinit const Op op_gemm = {"gemm",      index_of(OpIndex::gemm), kGemm, check_gemm, kernels_gemm,
                              no_workspace};
constinit const Op op_bias_grad = {"bias_grad",       index_of(OpIndex::bias_grad),
                                   kBiasGrad,         check_bias_grad,
                                   kernels_bias_grad, no_workspace};

OpCall gemm(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c,
            const Tensor& pre, GemmAttr attr) {
  return make_call(op_gemm, {a, b, bias, c, pre}, attr);
}
OpCall bias_grad(const Tensor& dy, const Tensor& d_bias) {
  return make_call(op_bias_grad, {dy, d_bias}, NoAttr{});
}

}  // namespace moetwin
