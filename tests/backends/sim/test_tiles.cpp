#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "backends/sim/cost/roofline.h"
#include "backends/sim/cost/tiles.h"

using namespace moetwin;

namespace {

KernelWork product(int64_t m, int64_t n, int64_t k) {
  KernelWork work;
  work.kind = KernelKind::gemm;
  work.dtype = DType::bf16;
  work.m = m;
  work.n = n;
  work.k = k;
  work.flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  work.bytes = 2.0 * static_cast<double>(m * k + k * n + m * n);
  return work;
}

KernelWork grouped(const std::vector<int64_t>& rows, int64_t n, int64_t k) {
  int64_t sum = 0, largest = 0;
  for (const int64_t r : rows) {
    sum += r;
    largest = std::max(largest, r);
  }
  KernelWork work = product(sum, n, k);
  work.kind = KernelKind::grouped_gemm;
  work.m = largest;
  work.batch = static_cast<int64_t>(rows.size());
  work.group_rows = &rows;
  return work;
}

/// Ten multiprocessors of 1 Tflop/s each, no losses; memory that never limits.
MatmulTiles round_tiles() {
  MatmulTiles tiles;
  tiles.multiprocessors = 10;
  return tiles;
}
constexpr FlopPerSecond kPeak{10e12};
constexpr BytesPerSecond kMemory{1e15};

double seconds(const KernelWork& work, const MatmulTiles& tiles) {
  return tiled_cost(work, tiles, kPeak, kMemory).value;
}

}  // namespace

TEST_CASE("tiles fill multiprocessors in waves") {
  const MatmulTiles tiles = round_tiles();
  // Ten tiles of 256x128: one wave of 2*256*128*512 flop at 1 Tflop/s.
  CHECK(seconds(product(256 * 10, 128, 512), tiles) == Approx(2.0 * 256 * 128 * 512 / 1e12));
  // Eleven tiles of 64x64 need two waves, whichever way they are cut; one of them is nearly idle.
  CHECK(seconds(product(64 * 11, 64, 512), tiles) == Approx(2 * 2.0 * 64 * 64 * 512 / 1e12));
  // With a tail that costs a quarter of what idles, 1.1 waves cost 1.1 + 0.25 * 0.9.
  MatmulTiles soft = tiles;
  soft.tail = 0.25;
  CHECK(seconds(product(64 * 11, 64, 512), soft) ==
        Approx((1.1 + 0.25 * 0.9) * 2 * 64 * 64 * 512 / 1e12));
  // One row costs what 64 rows cost.
  CHECK(seconds(product(1, 64, 512), tiles) == seconds(product(64, 64, 512), tiles));
  // The fixed time is paid once, a tile's own once a wave, so that one wave of six 128x64 wins.
  MatmulTiles slow = tiles;
  slow.fixed_seconds = Seconds(1e-3);
  slow.tile_seconds = Seconds(1e-4);
  CHECK(seconds(product(64 * 11, 64, 512), slow) ==
        Approx(1e-3 + 2.0 * 128 * 64 * 512 / 1e12 + 1e-4));
  // Smaller tiles lose more at their edges: 64x64 with edge 32 reaches half.
  MatmulTiles edged = tiles;
  edged.edge = 32;
  CHECK(seconds(product(64, 64, 512), edged) == Approx(2 * 2.0 * 64 * 64 * 512 / 1e12));
}

TEST_CASE("a deep product of few tiles is cut along k") {
  const MatmulTiles tiles = round_tiles();
  // One tile of 64x64, k 4096 in four parts on four multiprocessors; the partial sums' 8 bytes an
  // element and part go through half the memory's time.
  const double parts = 4 * 8.0 * 64 * 64 / (2 * 1e15);
  CHECK(seconds(product(64, 64, 4096), tiles) == Approx(2.0 * 64 * 64 * 1024 / 1e12 + parts));
  // Parts shorter than 512 are not made.
  CHECK(seconds(product(64, 64, 1023), tiles) == Approx(2.0 * 64 * 64 * 1024 / 1e12));
}

TEST_CASE("groups pay for the tiles their own rows need") {
  const MatmulTiles tiles = round_tiles();
  const std::vector<int64_t> even(10, 64), skewed = {631, 1, 1, 1, 1, 1, 1, 1, 1, 1}, none(10, 0);
  // 640 rows: ten tiles of 64 rows when even; ten for the hot group and nine nearly empty ones when
  // skewed: two waves.
  CHECK(seconds(grouped(even, 64, 256), tiles) == Approx(2.0 * 64 * 64 * 256 / 1e12));
  CHECK(seconds(grouped(skewed, 64, 256), tiles) == Approx(2 * 2.0 * 64 * 64 * 256 / 1e12));
  GpuProfile gpu;
  gpu.tiles = tiles;
  CHECK_FALSE(has_tiles(grouped(none, 64, 256), gpu));
  KernelWork shapeless;
  CHECK_FALSE(has_tiles(shapeless, gpu));
  CHECK(has_tiles(grouped(skewed, 64, 256), gpu));
}

TEST_CASE("memory limits a product that reads much and computes little") {
  const MatmulTiles tiles = round_tiles();
  const KernelWork thin = product(1, 65536, 65536);
  CHECK(tiled_cost(thin, tiles, FlopPerSecond(1e20), BytesPerSecond(1e12)).value ==
        Approx(thin.bytes / 1e12));
}

// One set of figures per GPU type, none per row; the rows are those the figures were fitted to, so
// this holds the model and the profiles together and predicts nothing.
TEST_CASE("published products of A100 and H100 are met") {
  std::ifstream file(TEST_FIXTURES "/published_gemm.csv");
  std::string line;
  REQUIRE(std::getline(file, line));
  const auto check = [&](const char* profile, const char* gpu, size_t rows, double median,
                         double high) {
    const GpuProfile machine = read_cluster_profile(profile, {TEST_CLUSTERS}).gpu;
    file.clear();
    file.seekg(0);
    std::vector<double> errors;
    while (std::getline(file, line)) {
      std::istringstream in(line);
      std::string id, type, m, n, k, measured;
      std::getline(in, id, ',');
      std::getline(in, type, ',');
      if (type != gpu) continue;
      for (std::string* field : {&m, &n, &k, &measured}) std::getline(in, *field, ',');
      const double predicted =
          cost(product(std::stoll(m), std::stoll(n), std::stoll(k)), machine).value;
      errors.push_back(std::abs(predicted / std::stod(measured) - 1));
    }
    REQUIRE(errors.size() == rows);
    std::sort(errors.begin(), errors.end());
    INFO(profile << ": median " << errors[rows / 2] << ", 95% " << errors[rows * 95 / 100]);
    CHECK(errors[rows / 2] <= median);
    CHECK(errors[rows * 95 / 100] <= high);
  };
  check("dgx-a100-80g", "A100", 204, 0.06, 0.16);
  check("dgx-h100", "H100", 68, 0.06, 0.25);
}

TEST_CASE("many tiny experts cost more than the dense layer of the same FLOP", "[P179]") {
  // 48 experts 128 wide, 8 of them active: as many products as a dense layer of 8 * 128.
  const int64_t tokens = 1200, hidden = 512;
  const std::vector<int64_t> rows(48, tokens * 8 / 48);
  const KernelWork experts = grouped(rows, 128, hidden), dense = product(tokens, 8 * 128, hidden);
  REQUIRE(experts.flop == dense.flop);
  const MatmulTiles tiles = round_tiles();
  // 200 rows a group are four rows of 64x64 tiles, of which the last is an eighth full: 48 * 4 * 2
  // tiles on 10 multiprocessors are 39 waves (the dense layer's 19 * 16 are 31).
  const double tile = 2.0 * 64 * 64 * static_cast<double>(hidden) / 1e12;
  CHECK(seconds(experts, tiles) == Approx(39 * tile));
  CHECK(seconds(dense, tiles) <= Approx(31 * tile));
  for (const char* profile : {"dgx-a100-80g", "dgx-h100"}) {
    const GpuProfile gpu = read_cluster_profile(profile, {TEST_CLUSTERS}).gpu;
    CHECK(cost(experts, gpu).value > 1.02 * cost(dense, gpu).value);
  }
}

TEST_CASE("what hot experts on two ranks instead of one would gain", "[P181]") {
  // Rank 0 has both hot experts; or each rank one. The step waits for the slower rank.
  const std::vector<int64_t> both = {4096, 4096, 256, 256}, cold = {256, 256, 256, 256},
                             one = {4096, 256, 256, 256};
  const GpuProfile gpu = read_cluster_profile("dgx-h100", {TEST_CLUSTERS}).gpu;
  const auto take = [&](const std::vector<int64_t>& rows) {
    return cost(grouped(rows, 4096, 4096), gpu).value;
  };
  const double gain = std::max(take(both), take(cold)) / take(one);
  // 8,704 rows against 4,864: no more than their ratio, and most of it.
  CHECK(gain < 8704.0 / 4864 * 1.05);
  CHECK(gain > 1.5);
}

TEST_CASE("power lowers the clock of tensor cores while a training goes on, not the memory's") {
  GpuProfile gpu;
  gpu.memory_bandwidth = BytesPerSecond(1e12);
  gpu.bandwidth_efficiency.fill(1);
  gpu.compute_efficiency.fill(1);
  gpu.matmul_peak.fill(kPeak);
  gpu.vector_peak = kPeak;
  gpu.tiles = round_tiles();
  gpu.sustained = 0.8;
  const KernelWork large = product(2560, 1280, 65536);
  const double alone = cost(large, gpu).value;
  CHECK(cost(large, gpu, clock_in(Phase::forward, gpu)).value == Approx(alone / 0.8));
  CHECK(cost(large, gpu, clock_in(Phase::backward, gpu)).value == Approx(alone / 0.8));
  CHECK(cost(large, gpu, clock_in(Phase::optimizer, gpu)).value == alone);
  KernelWork copy;
  copy.kind = KernelKind::elementwise;
  copy.bytes = 1e9;
  CHECK(cost(copy, gpu, clock_in(Phase::forward, gpu)).value == Approx(1e-3));
}

TEST_CASE("batched products of heads that are no multiple of 16 bytes miss the tensor cores") {
  GpuProfile gpu;
  gpu.memory_bandwidth = BytesPerSecond(1e15);
  gpu.matmul_peak.fill(FlopPerSecond(312e12));
  gpu.vector_peak = FlopPerSecond(19.5e12);
  gpu.tiles = round_tiles();
  const auto seconds_of = [&](int64_t head, int64_t batch) {
    KernelWork work = product(2048, 2048, head);
    work.batch = batch;
    work.flop *= static_cast<double>(batch);
    return cost(work, gpu).value / work.flop;
  };
  CHECK(seconds_of(150, 12) == Approx(1 / (2 * 0.17 * 19.5e12)));  // two elements a load
  CHECK(seconds_of(108, 12) == Approx(1 / (4 * 0.17 * 19.5e12)));
  CHECK(seconds_of(112, 12) < 0.1 * seconds_of(108, 12));
  CHECK(seconds_of(150, 1) < 0.1 * seconds_of(150, 12));  // a single product is padded
}
