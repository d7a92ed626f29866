#include "analysis/validate/kernel_row.h"

#include <fmt/format.h>

#include <optional>

#include "analysis/validate/bare_kernel.h"
#include "core/ops/activation.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "core/ops/gemm.h"
#include "core/ops/norm.h"

namespace moetwin {
namespace {

using Calls = std::vector<OpCall>;

struct Sizes {
  DType dtype = DType::f16;
  int64_t m = 0, n = 0, k = 0;
};

std::optional<DType> dtype_of(const std::string& text) {
  const std::string name = lower_case(text);
  if (name == "fp16") return DType::f16;
  if (name == "bf16") return DType::bf16;
  if (name == "fp32") return DType::f32;
  return std::nullopt;
}

class Maker {
 public:
  Maker(Allocator& memory, DType dtype) : memory_(memory), dtype_(dtype) {}
  Tensor make(const Shape& shape) const { return make(shape, dtype_); }
  Tensor make(const Shape& shape, DType dtype) const {
    return memory_.allocate(shape, dtype, MemoryClass::workspace, "measured");
  }
  Tensor real(const Shape& shape) const { return make(shape, real_dtype(dtype_)); }

 private:
  Allocator& memory_;
  DType dtype_;
};

Calls product(Allocator& memory, const Sizes& s) {
  const Maker t(memory, s.dtype);
  return {gemm(t.make({s.m, s.k}), t.make({s.k, s.n}), {}, t.make({s.m, s.n}), {}, {})};
}

/// A product of each of `batch` pairs of matrices.
Calls batched_product(const Sizes& s, int64_t batch) {
  KernelWork w;
  w.kind = KernelKind::gemm;
  w.dtype = s.dtype;
  w.m = s.m, w.n = s.n, w.k = s.k, w.batch = batch;
  const auto count = static_cast<double>(batch);
  const auto m = static_cast<double>(s.m), n = static_cast<double>(s.n),
             k = static_cast<double>(s.k);
  w.flop = 2 * m * n * k * count;
  w.bytes = static_cast<double>(dtype_size(s.dtype)) * (m * k + k * n + m * n) * count;
  return {bare_kernel(w)};
}

Calls grouped(Allocator& memory, const Sizes& s, int64_t groups, int64_t rows) {
  const Maker t(memory, s.dtype);
  const auto each =
      std::make_shared<const std::vector<int64_t>>(static_cast<size_t>(groups), rows / groups);
  return {grouped_gemm(t.make({rows, s.k}), t.make({groups, s.k, s.n}), {}, t.make({rows, s.n}), {},
                       {}, each)};
}

Calls norms(Allocator& memory, const Sizes& s, NormKind kind, bool backward) {
  const Maker t(memory, s.dtype);
  const bool layer = kind == NormKind::layer;
  const Tensor x = t.make({s.m, s.n}), y = t.make({s.m, s.n}), gamma = t.make({s.n});
  const Tensor mean = layer ? t.real({s.m}) : Tensor(), rstd = t.real({s.m});
  if (!backward)
    return {norm(x, gamma, layer ? t.make({s.n}) : Tensor(), y, mean, rstd, {kind, 1e-5})};
  const Tensor d_gamma = t.real({s.n}), d_beta = layer ? t.real({s.n}) : Tensor();
  return {
      norm_backward(x, gamma, mean, rstd, y, t.make({s.m, s.n}), d_gamma, d_beta, {kind, 1e-5})};
}

Calls embedding(Allocator& memory, const Sizes& s, int64_t sequence, bool positions) {
  const Maker t(memory, s.dtype);
  EmbedAttr attr;
  attr.sequence_length = sequence;
  return {embed(t.make({s.m}, DType::i32), t.make({32000, s.n}),
                positions ? t.make({sequence, s.n}) : Tensor(), t.make({s.m, s.n}), attr)};
}

Calls rotation(Allocator& memory, const Sizes& s, int64_t kv_heads) {
  const Maker t(memory, s.dtype);
  RotaryAttr attr;
  attr.head_dim = 128;
  attr.query_heads = s.n / 128;
  attr.kv_heads = kv_heads > 0 ? kv_heads : attr.query_heads;
  attr.sequence_length = s.m;
  return {rotary(t.make({s.m, (attr.query_heads + 2 * attr.kv_heads) * 128}), attr)};
}

Calls gelus(Allocator& memory, const Sizes& s, bool backward) {
  const Maker t(memory, s.dtype);
  const Tensor x = t.make({s.m, s.n}), y = t.make({s.m, s.n});
  if (backward) return {gelu_backward(x, y, t.make({s.m, s.n}), {true})};
  return {gelu(x, y, {true})};
}

/// Reads `reads` tensors of the shape and writes one.
Calls elements(const Sizes& s, int reads) {
  KernelWork w;
  w.dtype = s.dtype;
  w.flop = static_cast<double>(s.m * s.n);
  w.bytes = static_cast<double>((reads + 1) * s.m * s.n * dtype_size(s.dtype));
  return {bare_kernel(w)};
}

KernelChoice megatron_2021() {
  KernelChoice choice = KernelClass::megatron_2021;
  choice.attention_dropout = true;
  return choice;
}

/// Kernels of attention as bare work: masks of any kind, which the op, always causal, has not.
Calls attention_calls(const AttentionWork& work, const KernelChoice& choice) {
  Calls calls;
  for (const bool backward : {false, true}) {
    KernelList list;
    AttentionWork w = work;
    // Queries, keys, values and out; the backward reads these and d_out and writes three gradients.
    w.operand_bytes = (backward ? 8.0 : 4.0) * static_cast<double>(work.heads * work.sequence) *
                      static_cast<double>(work.head_dim * dtype_size(work.dtype));
    attention_kernels(w, backward, choice, list);
    for (const KernelWork& k : list) calls.push_back(bare_kernel(k));
  }
  return calls;
}

/// Kernels of the attention of Megatron 2021 by their place in the list. Aceso's profiler times the
/// fused softmax with any number of heads, so they are those of four times the heads by four.
Calls attention_part(AttentionWork work, bool backward, const std::vector<size_t>& which) {
  KernelList list;
  work.heads *= 4;
  attention_kernels(work, backward, megatron_2021(), list);
  Calls calls;
  for (const size_t i : which) {
    KernelWork k = list.at(i);
    k.flop /= 4, k.bytes /= 4;
    if (k.batch > 1) k.batch /= 4;
    calls.push_back(bare_kernel(k));
  }
  return calls;
}

int64_t tensor_parallel(const PublishedRow& row) {
  const std::string& notes = row.text("notes");
  const size_t at = notes.find("tp=");
  return at == std::string::npos ? 1 : std::max(1, std::atoi(notes.c_str() + at + 3));
}

/// Operators of a Megatron layer as Aceso's profiler times them (GPT-Neo 2.7B).
bool read_megatron_op(const PublishedRow& row, Sizes s, KernelRow& out) {
  const std::string& op = row.text("op");
  const bool backward = row.text("pass") == "bwd";
  const int64_t tp = tensor_parallel(row), sequence = row.whole("seq", 2048);
  const int64_t hidden = 2560, heads = row.whole("heads", 20) / tp, dim = 128;
  s.m = row.whole("batch", 1) * sequence;
  out.kernels = "megatron-2021";
  const auto part = [&](std::vector<size_t> forward, std::vector<size_t> back) {
    AttentionWork work;
    work.dtype = s.dtype;
    work.sequence = sequence;
    work.head_dim = dim;
    work.heads = heads * row.whole("batch", 1);
    out.calls = [=, which = backward ? back : forward](Allocator&) {
      return attention_part(work, backward, which);
    };
  };
  if (op == "enc-attention-score") return part({0}, {4, 5}), true;
  if (op == "enc-attention-softmax") return part({1}, {3}), true;
  if (op == "enc-attention-dropout") return part({2}, {2}), true;
  if (op == "enc-attention-context") return part({3}, {0, 1}), true;
  if (op == "enc-1st-layernorm") {
    s.n = hidden;
    out.calls = [=](Allocator& memory) { return norms(memory, s, NormKind::layer, backward); };
    return true;
  }
  if (op == "enc-MLP-gelu") {
    s.n = 4 * hidden / tp;
    out.calls = [=](Allocator& memory) { return gelus(memory, s, backward); };
    return true;
  }
  if (op == "encoder-embedding" && !backward && tp == 1) {
    s.n = hidden;
    out.calls = [=](Allocator& memory) { return embedding(memory, s, sequence, true); };
    return true;
  }
  return false;
}

bool read_product(const PublishedRow& row, const Sizes& s, KernelRow& out) {
  if (s.m <= 0 || s.n <= 0 || s.k <= 0) return false;
  if (row.text("pass") == "bwd") {
    out.reason =
        "backward times of this profiler are too short for its two products (source's trap)";
    return true;
  }
  const int64_t batch =
      row.series() == "GM-SAILOR" || row.mentions("series", "SAILOR") ? 1 : row.whole("batch", 1);
  out.kernels = "megatron-core";
  if (batch > 1)
    out.calls = [=](Allocator&) { return batched_product(s, batch); };
  else
    out.calls = [=](Allocator& memory) { return product(memory, s); };
  if (const auto rate = row.number("tflops"); rate && !row.has("time_ms"))
    out.seconds = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) *
                  static_cast<double>(s.k * batch) / (*rate * 1e12);
  return true;
}

/// A product of FP8 operands into 16 bit.
bool read_fp8(const PublishedRow& row, KernelRow& out) {
  const std::string dtype = lower_case(row.text("dtype"));
  const int64_t m = row.whole("M", 0), n = row.whole("N", 0), k = row.whole("K", 0);
  if ((dtype != "fp8" && dtype != "fp8_e4m3") || row.text("op") != "gemm" || m * n * k <= 0)
    return false;
  KernelWork w;
  w.kind = KernelKind::gemm;
  w.dtype = DType::bf16;
  w.fp8 = true;
  w.m = m, w.n = n, w.k = k;
  w.flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  w.bytes = static_cast<double>(m * k + k * n + 2 * m * n);
  if (const auto rate = row.number("tflops")) out.seconds = w.flop / (*rate * 1e12);
  out.kernels = "megatron-core";
  out.calls = [w](Allocator&) { return Calls{bare_kernel(w)}; };
  return out.seconds > 0;
}

bool read_grouped(const PublishedRow& row, const Sizes& s, KernelRow& out) {
  const int64_t groups = row.whole("groups", 0), rows = row.whole("tokens", 0);
  if (row.text("op") != "grouped_gemm" || groups < 1 || rows < groups || s.n < 1 || s.k < 1)
    return false;
  if (!row.mentions("notes", "uniform")) {
    out.reason = "rows of each group are not stated";
    return true;
  }
  out.kernels = "megatron-core";
  if (row.mentions("impl", "cuBLAS loop")) {  // of a C++ library
    out.kernels = "moetwin";
    Sizes each = s;
    each.m = rows / groups;
    out.calls = [=](Allocator& memory) {
      return Calls(static_cast<size_t>(groups), product(memory, each).front());
    };
  } else {
    out.calls = [=](Allocator& memory) { return grouped(memory, s, groups, rows); };
  }
  if (const auto rate = row.number("tflops"))
    out.seconds = 2.0 * static_cast<double>(rows) * static_cast<double>(s.n) *
                  static_cast<double>(s.k) / (*rate * 1e12);
  return true;
}

bool read_attention(const PublishedRow& row, DType dtype, KernelRow& out) {
  const int64_t sequence = row.whole("seq", 0), dim = row.whole("head_dim", 0);
  const int64_t heads = row.whole("heads", 0), batch = row.whole("batch", 0);
  const auto rate = row.number("tflops");
  if (row.text("op") != "attention" || row.text("pass") != "fwd+bwd" || !rate ||
      sequence * dim * heads * batch <= 0)
    return false;
  const bool causal = row.text("causal") == "1";
  const double forward = 4.0 * static_cast<double>(sequence) * static_cast<double>(sequence) *
                         static_cast<double>(dim * heads * batch) * (causal ? 0.5 : 1);
  out.seconds = 3.5 * forward / (*rate * 1e12);
  out.kernels = "torch-fsdp";
  KernelChoice choice = KernelClass::torch_fsdp;
  const std::string impl = row.text("impl");
  if (impl == "PyTorch")
    choice.attention = AttentionKernel::unfused;
  else if (impl == "FlashAttention")
    choice.attention = AttentionKernel::flash;
  else if (impl == "FlashAttention-2")
    choice.attention = AttentionKernel::flash2;
  else if (impl == "FlashAttention Triton")
    choice.attention = AttentionKernel::flash_triton;
  else if (impl == "xformers")
    choice.attention = AttentionKernel::memory_efficient;
  else
    return false;
  AttentionWork work;
  work.dtype = dtype;
  work.sequence = sequence;
  work.head_dim = dim;
  work.heads = heads * batch;
  work.causal = causal;
  out.calls = [=](Allocator&) { return attention_calls(work, choice); };
  return true;
}

bool read_elementwise(const PublishedRow& row, const Sizes& s, KernelRow& out) {
  const std::string& op = row.text("op");
  if (s.m <= 0 || s.n <= 0) return false;
  const bool vidur = row.mentions("series", "VIDUR");
  out.kernels = vidur ? "megatron-core" : "torch-fsdp";
  if (op == "input_layernorm" || op == "ln") {
    const NormKind kind = vidur ? NormKind::rms : NormKind::layer;
    out.calls = [=](Allocator& memory) { return norms(memory, s, kind, false); };
  } else if (op == "mlp_act") {
    out.calls = [=](Allocator& memory) {
      const Maker t(memory, s.dtype);
      return Calls{swiglu(t.make({s.m, 2 * s.n}), t.make({s.m, s.n}))};
    };
  } else if (op == "attn_rope") {
    const int64_t kv = row.mentions("series", "L27B") ? 0 : 8;  // Llama-2 70B has 8 kv heads
    out.calls = [=](Allocator& memory) { return rotation(memory, s, kv); };
  } else if (op == "emb") {
    out.calls = [=](Allocator& memory) { return embedding(memory, s, s.m, false); };
  } else if (op == "add" || op == "mul" || op == "div" || op == "sub") {
    out.calls = [=](Allocator&) { return elements(s, 2); };
  } else if (op == "addu" || op == "mulu" || op == "divu" || op == "subu" || op == "powu" ||
             op == "pow" || op == "relu" || op == "tanh" || op == "gelu" || op == "exp") {
    out.calls = [=](Allocator&) { return elements(s, 1); };
  } else {
    return false;
  }
  return true;
}

}  // namespace

KernelRow read_kernel_row(const PublishedRow& row) {
  KernelRow out;
  if (read_fp8(row, out)) return out;
  const std::optional<DType> dtype = dtype_of(row.text("dtype"));
  if (!dtype) {
    out.reason = row.has("dtype") ? fmt::format("type {}: not one of fp32, bf16, fp16",
                                                lower_case(row.text("dtype")))
                                  : "a copy or a launch, not a kernel with a type";
    return out;
  }
  const Sizes s{*dtype, row.whole("M", 0), row.whole("N", 0), row.whole("K", 0)};
  if (const auto ms = row.number("time_ms")) out.seconds = *ms * 1e-3;
  const bool known = read_attention(row, *dtype, out) || read_grouped(row, s, out) ||
                     read_product(row, s, out) || read_elementwise(row, s, out) ||
                     (row.mentions("series", "SAILOR") && read_megatron_op(row, s, out));
  if (!known)
    out.reason = fmt::format("{}: {}", row.text("op"),
                             s.m == 0 ? "no shape is stated" : "no op of the model");
  if (out.reason.empty() && !(out.seconds > 0)) out.reason = "no time and no rate";
  return out;
}

}  // namespace moetwin
