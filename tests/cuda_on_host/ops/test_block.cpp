// The emulated block: threads that wait for each other, and the misuses that a GPU leaves
// undefined.

#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "backends/cuda/device.cuh"

namespace moetwin {
namespace {

using emulated::Grid;
using emulated::run_grid;

struct Shuffled {
  explicit Shuffled(uint64_t seed) { emulated::set_shuffle(seed); }
  ~Shuffled() { emulated::set_shuffle(0); }
};

void expect_error(const Grid& grid, const std::function<void()>& body, const std::string& part) {
  try {
    run_grid(grid, body);
  } catch (const std::runtime_error& error) {
    INFO(error.what());
    CHECK(std::string(error.what()).find(part) != std::string::npos);
    return;
  }
  FAIL_CHECK("no error, wanted: " << part);
}

}  // namespace

TEST_CASE("every thread of every block runs once, in any order") {
  for (uint64_t seed : {0, 1, 7}) {
    const Shuffled shuffled(seed);
    std::vector<int> times(5 * 64);
    run_grid({5, 64, 0}, [&] { ++times[static_cast<size_t>(grid_thread())]; });
    CHECK(times == std::vector<int>(times.size(), 1));
  }
}

TEST_CASE("threads see what others wrote before a barrier") {
  for (uint64_t seed : {0, 3}) {
    const Shuffled shuffled(seed);
    std::vector<int> sums(3 * 96);
    run_grid({3, 96, 96 * sizeof(int)}, [&] {
      int* shared = reinterpret_cast<int*>(shared_memory());
      for (int round = 0; round < 4; ++round) {
        shared[thread_id()] = thread_id() + round;
        sync_block();
        sums[static_cast<size_t>(grid_thread())] += shared[95 - thread_id()];
        sync_block();
      }
    });
    for (int i = 0; i < 3 * 96; ++i) CHECK(sums[static_cast<size_t>(i)] == 4 * (95 - i % 96) + 6);
  }
}

TEST_CASE("warp and block primitives against sums written out") {
  std::vector<int> warp(64), block(64), least(64), scan(64), total(64), shuffle(64);
  std::vector<uint32_t> ballot(64), match(64);
  std::vector<float> top(64);
  run_grid({1, 64, 0}, [&] {
    const size_t t = static_cast<size_t>(thread_id());
    warp[t] = warp_sum(thread_id());
    block[t] = block_sum(thread_id());
    least[t] = -block_max(-thread_id());
    top[t] = warp_max(static_cast<float>(thread_id() % 7));
    scan[t] = block_exclusive_sum(thread_id(), total[t]);
    shuffle[t] = warp_shuffle(thread_id(), lane_id() ^ 1);
    ballot[t] = warp_ballot(lane_id() % 3 == 0);
    match[t] = warp_match(lane_id() % 4);
  });
  for (int i = 0; i < 64; ++i) {
    const size_t t = static_cast<size_t>(i);
    CHECK(warp[t] == (i < 32 ? 31 * 16 : 31 * 16 + 32 * 32));
    CHECK(block[t] == 63 * 32);
    CHECK(least[t] == 0);
    CHECK(top[t] == 6);
    CHECK(scan[t] == i * (i - 1) / 2);
    CHECK(total[t] == 63 * 32);
    CHECK(shuffle[t] == (i ^ 1));
    CHECK(ballot[t] == 0x49249249u);
    CHECK(match[t] == 0x11111111u << i % 4);
  }
}

TEST_CASE("shared memory starts as NaN in every block") {
  std::vector<float> seen(2);
  run_grid({2, 32, 4}, [&] {
    float* shared = reinterpret_cast<float*>(shared_memory());
    if (thread_id() != 0) return;
    seen[static_cast<size_t>(block_id())] = *shared;
    *shared = 1;
  });
  CHECK(std::isnan(seen[0]));
  CHECK(std::isnan(seen[1]));
}

TEST_CASE("a missing barrier shows in some order of threads") {
  const auto wrong = [](uint64_t seed) {
    const Shuffled shuffled(seed);
    int bad = 0;
    run_grid({1, 64, 64 * sizeof(int)}, [&] {
      int* shared = reinterpret_cast<int*>(shared_memory());
      shared[thread_id()] = thread_id();
      bad += shared[(thread_id() + 63) % 64] != (thread_id() + 63) % 64;  // of the thread before
    });
    return bad;
  };
  CHECK(wrong(0) == 1);  // thread 0 reads what the last one has not written
  CHECK(wrong(1) > 1);
}

TEST_CASE("an asynchronous copy has not arrived before it is waited for") {
  alignas(16) float from[4] = {1, 2, 3, 4};
  float early = 0, late = 0;
  run_grid({1, 32, 16}, [&] {
    float* shared = reinterpret_cast<float*>(shared_memory());
    if (thread_id() != 0) return;
    copy_async(shared, from);
    early = shared[2];
    copy_async_wait();
    late = shared[2];
  });
  CHECK(std::isnan(early));
  CHECK(late == 3);
}

TEST_CASE("the matrix tile multiplies, transposed or not, and scales rows") {
  alignas(32) uint16_t a[256], b[256];
  alignas(32) float c[256] = {};
  const auto value = [](int i, int j) { return static_cast<float>((i * 5 + j * 3) % 11 - 5); };
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      a[i * 16 + j] = from_float<bf16>(value(i, j)).bits;
      b[i * 16 + j] = from_float<bf16>(value(j, i) + 1).bits;  // b[i][j] of the transposed operand
    }
  run_grid({1, 32, 2048}, [&] {
    float* factors = reinterpret_cast<float*>(shared_memory());
    TileRows rows;
    rows.find(factors + 256);
    if (lane_id() < 16) factors[lane_id()] = static_cast<float>(lane_id());
    sync_warp();
    TileA<bf16> left;
    TileB<bf16, true> right;
    TileSum sum;
    sum.clear();
    left.load(reinterpret_cast<const bf16*>(a), 16);
    right.load(reinterpret_cast<const bf16*>(b), 16);
    multiply_add(sum, left, right);
    multiply_add(sum, left, right);
    scale_rows(sum, rows, factors);
    sum.store(c, 16);
  });
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      float want = 0;
      for (int k = 0; k < 16; ++k) want += 2 * value(i, k) * (value(k, j) + 1);
      CHECK(c[i * 16 + j] == static_cast<float>(i) * want);
    }
}

TEST_CASE("what threads must not do is refused, with block, thread and line") {
  expect_error(
      {2, 64, 0},
      [] {
        if (thread_id() >= 32) sync_block();
      },
      "threads have ended");
  expect_error(
      {1, 64, 0},
      [] {
        if (thread_id() == 63) return;
        sync_block();
      },
      "ends while others wait in sync_block at");
  expect_error(
      {1, 64, 0},
      [] {
        if (thread_id() < 32)
          sync_block();
        else
          block_sum(1);
      },
      "while others wait in sync_block at");
  expect_error(
      {1, 32, 0},
      [] {
        if (lane_id() < 16)
          sync_warp();
        else
          sync_block();
      },
      "while its warp waits in sync_warp at");
  expect_error(
      {1, 64, 0},
      [] {
        if (thread_id() < 32)
          sync_block();
        else if (lane_id() < 16)
          sync_warp();
        else
          sync_block();
      },
      "while its warp waits in sync_warp at");
  expect_error(
      {1, 40, 0}, [] {}, "whole warps");
  expect_error(
      {1, 32, 0}, [] { warp_shuffle(1, 32); }, "from no lane");
  expect_error(
      {1, 32, 64}, [] { copy_async(shared_memory() + 4, shared_memory()); }, "not aligned to 16");
  expect_error(
      {1, 32, 2048},
      [] {
        TileSum sum;
        sum.clear();
        sum.store(reinterpret_cast<float*>(shared_memory()) + 4, 16);
      },
      "not aligned to 32");
  // What follows an error is as good as new.
  int sum = 0;
  run_grid({1, 64, 0}, [&] { sum = block_sum(1); });
  CHECK(sum == 64);
}

TEST_CASE("conversions round to nearest even") {
  CHECK(to_float(from_float<bf16>(1.00390625f)) == 1.0f);       // half way, to even
  CHECK(to_float(from_float<bf16>(1.01171875f)) == 1.015625f);  // half way, to even
  CHECK(std::isnan(to_float(from_float<bf16>(NAN))));
  CHECK(std::isinf(to_float(from_float<bf16>(3.4e38f))));
  CHECK(to_float(from_float<f16>(0.1f)) == 0.0999755859375f);
  CHECK(std::isinf(to_float(from_float<f16>(70000.0f))));
}

}  // namespace moetwin
