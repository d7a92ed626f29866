// Attention as frameworks launch it.
#include <initializer_list>

#include "core/ops/attention.h"
#include "core/ops/random.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

/// A mask added by broadcasting: each element finds its place by integer divisions.
/// GM-FA-A100-C64-PT less -N64-PT: 185e9 elements a second on 19.5 TFLOP/s at half of it.
constexpr double kFlopPerMaskedScore = 52;
constexpr int64_t kLongestRow = 1024;  ///< of PyTorch's softmax in registers

KernelWork fused(const AttentionWork& w, int products, AttentionKernel kernel) {
  const double s = static_cast<double>(w.sequence);
  const double pairs = static_cast<double>(w.heads) *
                       (w.causal ? s * (s + 1) / 2 : s * static_cast<double>(w.keys()));
  KernelWork k =
      simple_kernel(KernelKind::attention, w.dtype,
                    products * 2 * pairs * static_cast<double>(w.head_dim), w.operand_bytes);
  k.m = w.sequence;
  k.n = w.keys();
  k.k = w.head_dim;
  k.batch = w.heads;
  k.attention = kernel;
  k.causal = w.causal;
  return k;
}

/// Megatron's fused softmax takes heads (of all sequences of a micro-batch) by fours; others go
/// through PyTorch's in fp32 (megatron/model/fused_softmax.py: is_kernel_available).
constexpr int64_t kHeadsOfFusedSoftmax = 4;

}  // namespace

void attention_kernels(const AttentionWork& w, bool backward, const KernelChoice& choice,
                       KernelList& out) {
  if (!keeps_scores(choice.attention)) {
    out.push_back(fused(w, backward ? 5 : 2, choice.attention));
    return;
  }
  const DType d = w.dtype;
  const int64_t s = w.sequence, n = w.keys();
  const double scores =
      static_cast<double>(w.heads) * static_cast<double>(s) * static_cast<double>(n);
  const double p = scores * static_cast<double>(dtype_size(d));
  // Queries, keys (once repeated), values and out are alike.
  const double rows = static_cast<double>(w.heads * s * w.head_dim * dtype_size(d));
  const auto to_scores = [&] {
    out.push_back(gemm_kernel(d, s, n, w.head_dim, w.heads, 2 * rows + p));
  };
  const auto from_scores = [&] {
    out.push_back(gemm_kernel(d, s, w.head_dim, n, w.heads, 2 * rows + p));
  };
  const auto pass = [&](KernelKind kind, double flop, double bytes) {
    out.push_back(simple_kernel(kind, d, flop * scores, bytes));
  };
  const auto copy = [&](double of_rows) {
    out.push_back(simple_kernel(KernelKind::elementwise, d, 0, 2 * of_rows * rows));
  };
  const bool torch = choice.attention == AttentionKernel::unfused;
  // PyTorch's softmax goes over rows that are too long for its registers once more.
  const double again = torch && n > kLongestRow ? p : 0;
  const bool in_fp32 = !torch && dtype_size(d) == 2 && w.heads % kHeadsOfFusedSoftmax != 0;
  const auto element_wise = [&](std::initializer_list<double> bytes_of_score) {
    for (const double bytes : bytes_of_score) pass(KernelKind::elementwise, 1, bytes * scores);
  };
  if (!backward) {
    if (torch) copy(3);  // queries, keys and values out of the packed projection
    to_scores();
    if (torch && w.causal) pass(KernelKind::elementwise, kFlopPerMaskedScore, 2 * p);
    if (in_fp32) {
      element_wise({6, 8});  // widened, scaled
      pass(KernelKind::elementwise, kFlopPerMaskedScore, 8 * scores);
      pass(KernelKind::reduction, 6, 8 * scores);
      element_wise({6});  // narrowed
    } else {
      pass(KernelKind::reduction, 6, 2 * p + again);
    }
    if (choice.attention_dropout)
      pass(KernelKind::elementwise, flop_per_dropout(choice), 2 * p + scores);
    from_scores();
    copy(1);  // heads back beside each other
    return;
  }
  to_scores();    // d_probabilities
  from_scores();  // d_values
  if (choice.attention_dropout) pass(KernelKind::elementwise, 1, 2 * p + scores);
  if (in_fp32) {
    element_wise({6});
    pass(KernelKind::reduction, 4, 12 * scores);
    element_wise({8, 8, 6});  // through the mask and the scale, narrowed
  } else {
    pass(KernelKind::reduction, 4, 3 * p + again);
  }
  from_scores();        // d_queries
  from_scores();        // d_keys
  copy(1);              // heads of d_out apart
  copy(torch ? 5 : 3);  // into the gradient of the packed projection
}

}  // namespace moetwin
