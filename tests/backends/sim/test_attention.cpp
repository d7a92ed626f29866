// Seconds of attention kernels: by hand, and against FlashAttention's published rates.
#include <catch2/catch.hpp>

#include "backends/sim/cost/attention.h"
#include "backends/sim/cost/roofline.h"
#include "core/ops/attention.h"

using namespace moetwin;

namespace {

GpuProfile round_gpu() {
  GpuProfile gpu;
  gpu.matmul_peak.fill(FlopPerSecond(1e12));
  gpu.vector_peak = FlopPerSecond(1e12);
  gpu.memory_bandwidth = BytesPerSecond(1e15);
  gpu.compute_efficiency.fill(1);
  gpu.bandwidth_efficiency.fill(1);
  gpu.attention[static_cast<size_t>(AttentionKernel::flash2)] = {0.4, 0.5, 100, 50};
  return gpu;
}

AttentionWork work(int64_t sequence, int64_t head_dim, bool causal) {
  AttentionWork w;
  w.dtype = DType::f16;
  w.sequence = sequence;
  w.head_dim = head_dim;
  // The setting of the published figures: 16,384 tokens, 2,048 wide.
  w.heads = 16384 / sequence * (2048 / head_dim);
  w.causal = causal;
  w.operand_bytes = 4 * 2 * 16384.0 * 2048;
  return w;
}

/// As the figures count them: 4 s^2 d a head forward and 2.5 times that backward, causal half.
double published_flop(int64_t sequence, bool causal) {
  return 3.5 * 4 * static_cast<double>(sequence) * 16384 * 2048 * (causal ? 0.5 : 1);
}

double seconds(const AttentionWork& w, const KernelChoice& choice, const GpuProfile& gpu) {
  KernelList list;
  attention_kernels(w, false, choice, list);
  attention_kernels(w, true, choice, list);
  double sum = 0;
  for (const KernelWork& k : list) sum += cost(k, gpu).value;
  return sum;
}

}  // namespace

TEST_CASE("a fused attention kernel: FLOP at its rate, longer by its ramp over the keys") {
  KernelChoice flash2;
  flash2.attention = AttentionKernel::flash2;
  const auto take = [&](int64_t sequence, int64_t dim, bool causal) {
    return seconds(work(sequence, dim, causal), flash2, round_gpu());
  };
  CHECK(take(1000, 64, false) ==
        Approx(14.0 * 16 * 32 * 1000 * 1000 * 64 / 0.4e12 * (1 + 100.0 / 1000)));
  CHECK(take(1000, 128, false) ==
        Approx(14.0 * 16 * 16 * 1000 * 1000 * 128 / 0.5e12 * (1 + 100.0 / 1000)));
  // 500.5 keys on average; the diagonal's blocks cost 50 more.
  CHECK(take(1000, 64, true) ==
        Approx(14.0 * 16 * 32 * 1000 * 500.5 * 64 / 0.4e12 * (1 + 150.0 / 500.5)));
  // Wider heads are no faster than those of 128.
  CHECK(take(1024, 256, false) == Approx(take(1024, 128, false)));
}

TEST_CASE("attention of no sequence costs a launch") {
  GpuProfile gpu = round_gpu();
  gpu.kernel_seconds = Seconds(3e-6);
  gpu.tiles = MatmulTiles{};
  gpu.tiles->multiprocessors = 108;
  AttentionWork none = work(1024, 128, true);
  none.heads = 0;
  none.operand_bytes = 0;
  KernelChoice flash2;
  flash2.attention = AttentionKernel::flash2;
  KernelList list;
  attention_kernels(none, false, flash2, list);
  CHECK(list.size() >= 1);
  for (const KernelWork& k : list) CHECK(cost(k, gpu).value == 3e-6);
}

TEST_CASE("too few heads and queries leave multiprocessors idle") {
  GpuProfile gpu = round_gpu();
  gpu.tiles.emplace();
  gpu.tiles->multiprocessors = 64;
  KernelWork k;
  k.kind = KernelKind::attention;
  k.dtype = DType::f16;
  k.flop = 1e9;
  k.m = k.n = 512;  // four blocks of 128 queries a head
  k.k = 64;
  k.attention = AttentionKernel::flash2;
  const AttentionRate rate{0.5, 0.5, 0, 0};
  k.batch = 16;
  CHECK(attention_cost(k, rate, gpu).value == Approx(2e-3));
  k.batch = 4;
  CHECK(attention_cost(k, rate, gpu).value == Approx(4 * 2e-3));
}

TEST_CASE("FlashAttention's published rates, A100 and H100") {
  struct Row {
    const char* profile;
    AttentionKernel kernel;
    int64_t dim;
    bool causal;
    int64_t sequence;
    double tflops;
  };
  // TFLOP/s of forward and backward, from the bars of the figures in flash-attention's repository.
  const Row rows[] = {
      {"dgx-a100-80g", AttentionKernel::flash2, 64, false, 512, 132},
      {"dgx-a100-80g", AttentionKernel::flash2, 64, false, 2048, 162},
      {"dgx-a100-80g", AttentionKernel::flash2, 64, true, 1024, 119},
      {"dgx-a100-80g", AttentionKernel::flash2, 64, true, 16384, 171},
      {"dgx-a100-80g", AttentionKernel::flash2, 128, false, 4096, 196},
      {"dgx-a100-80g", AttentionKernel::flash, 64, false, 2048, 104},
      {"dgx-a100-80g", AttentionKernel::flash, 128, false, 2048, 76},
      {"dgx-a100-80g", AttentionKernel::memory_efficient, 128, false, 2048, 95},
      {"dgx-a100-80g", AttentionKernel::flash_triton, 64, false, 4096, 98},
      {"dgx-a100-80g", AttentionKernel::unfused, 64, false, 2048, 43},
      {"dgx-a100-80g", AttentionKernel::unfused, 64, true, 4096, 18},
      {"dgx-h100", AttentionKernel::flash2, 128, true, 2048, 265},
      {"dgx-h100", AttentionKernel::flash2, 64, true, 8192, 273},
      {"dgx-h100", AttentionKernel::flash, 128, false, 2048, 128},
      {"dgx-h100", AttentionKernel::unfused, 128, false, 8192, 167},
      {"dgx-h100", AttentionKernel::unfused, 64, true, 4096, 32},
  };
  for (const Row& row : rows) {
    INFO(row.profile << " " << attention_kernel_name(row.kernel) << " head " << row.dim
                     << " causal " << row.causal << " sequence " << row.sequence);
    const GpuProfile gpu = read_cluster_profile(row.profile, {TEST_CLUSTERS}).gpu;
    KernelChoice choice = KernelClass::torch_fsdp;
    choice.attention = row.kernel;
    const double took = seconds(work(row.sequence, row.dim, row.causal), choice, gpu);
    CHECK(published_flop(row.sequence, row.causal) / took / 1e12 ==
          Approx(row.tflops).epsilon(0.08));
  }
}
