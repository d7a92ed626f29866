#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "core/scenario/sizes.h"
#include "core/topology/grid.h"
#include "tests/core/topology/sizes_of.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

std::string refusal(const DistributedConfig& config, int64_t experts, int64_t width = 128) {
  try {
    Grid grid(config, experts, width);
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::configuration);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("EP beyond the world is refused, never clamped", "[P001]") {
  CHECK_THAT(refusal(sizes_of({.world = 16, .ep = 32}), 64),
             Contains("ETP 1 x EP 32 x PP 1 = 32 > W 16") &&
                 Contains("legal expert_parallel_size: 1, 2, 4, 8, 16"));
}

TEST_CASE("context parallelism splits the dense grid and goes with any experts", "[P004]") {
  DistributedConfig config = sizes_of({.world = 16, .dp = 2, .ep = 4, .tp = 2, .etp = 2});
  CHECK(refusal(config, 8) == "accepted");
  config.context_parallel_size = 4;
  CHECK(refusal(config, 8) == "accepted");
  const Grid grid(config, 8, 128);
  CHECK(grid.ddp() == 8);
  CHECK(grid.batch_ranks() == 2);
  // Neighbours on the dense axis, TP apart.
  CHECK(grid.group(GroupKind::cp, 5).members() == std::vector<int64_t>{1, 3, 5, 7});
  CHECK(grid.group(GroupKind::cp, 12).members() == std::vector<int64_t>{8, 10, 12, 14});
  CHECK(grid.group(GroupKind::dense_dp, 5).size() == 8);
  config.context_parallel_size = 3;
  CHECK_THAT(refusal(config, 8), Contains("CP 3 does not divide W 16 / (TP 2 x PP 1) = 8") &&
                                     Contains("legal context_parallel_size: 1, 2, 4, 8"));
  // Megatron's DP counts ranks with sequences of their own.
  config.context_parallel_size = 4;
  config.parallel_folding = true;
  config.expert_tensor_parallel_size = 1;
  config.data_parallel_size = 4;
  config.dense_data_parallel_size = 2;
  CHECK(refusal(config, 8) == "accepted");
  config.dense_data_parallel_size = 8;
  CHECK_THAT(refusal(config, 8), Contains("DDP 8 x CP 4 x TP 2 x PP 1 = 64, but W is 16") &&
                                     Contains("legal dense_data_parallel_size: 2"));
}

TEST_CASE("a refusal shows every factor, not the product alone", "[P007]") {
  CHECK(refusal(sizes_of({.world = 4, .dp = 1, .ep = 2, .pp = 2, .etp = 1}), 8) == "accepted");
  CHECK_THAT(
      refusal(sizes_of({.world = 4, .dp = 1, .ep = 4, .pp = 2, .etp = 1}), 8),
      Contains("ETP 1 x EP 4 x PP 2 = 8 > W 4") && Contains("legal expert_parallel_size: 1, 2;"));
}

TEST_CASE("a script sized for more GPUs learns the legal EP sizes", "[P009][P010]") {
  // 8 / (ETP 1 x PP 2) = 4 has the divisors 1, 2, 4.
  CHECK_THAT(refusal(sizes_of({.world = 8, .dp = 1, .ep = 8, .pp = 2, .etp = 1}), 64),
             Contains("ETP 1 x EP 8 x PP 2 = 16 > W 8") &&
                 Contains("legal expert_parallel_size: 1, 2, 4;"));
  CHECK_THAT(
      refusal(sizes_of({.world = 4, .dp = 1, .ep = 8}), 64),
      Contains("ETP 1 x EP 8 x PP 1 = 8 > W 4") && Contains("legal expert_parallel_size: 1, 2, 4"));
  CHECK(legal_expert_parallel_sizes(sizes_of({.world = 4}), 64, 128) ==
        std::vector<int64_t>{1, 2, 4});
}

TEST_CASE("experts that do not divide over EP are refused with the rest", "[P013]") {
  CHECK_THAT(refusal(sizes_of({.world = 3, .ep = 3}), 8),
             Contains("8 mod 3 = 2") && Contains("legal expert_parallel_size: 1"));
  CHECK_THAT(refusal(sizes_of({.world = 3, .ep = 3}), 256), Contains("256 mod 3 = 1"));
}

TEST_CASE("the expert count is not the EP size", "[P016]") {
  const DistributedConfig fits = sizes_of({.world = 2, .ep = 2});
  CHECK(Grid(fits, 8, 128).local_experts() == 4);
  CHECK_THAT(refusal(sizes_of({.world = 2, .ep = 8}), 8),
             Contains("EP 8 x PP 1 = 8 > W 2") && Contains("legal expert_parallel_size: 1, 2"));
}

TEST_CASE("hidden sharding needs whole rows", "[P021]") {
  CHECK(refusal(sizes_of({.world = 4, .ep = 4}), 2, 128) == "accepted");
  CHECK_THAT(refusal(sizes_of({.world = 4, .ep = 4}), 2, 127),
             Contains("hidden sharding 2, which does not divide the expert width 127 (rest 1)") &&
                 Contains("legal expert_parallel_size: 1, 2"));
  CHECK_THAT(refusal(sizes_of({.world = 6, .ep = 6}), 4, 128),
             Contains("expert_parallel_size 6 exceeds num_experts 4 and 6 mod 4 = 2"));
}

TEST_CASE("seed 001's assertion names each size and what would repair it") {
  CHECK_THAT(
      refusal(sizes_of({.world = 16, .dp = 8, .ep = 4}), 64),
      Contains("data_parallel_size 8 x expert_parallel_size 4 x tensor_parallel_size 1 x "
               "pipeline_parallel_size 1 = 32, but world_size is 16") &&
          Contains("legal: world_size 32, or data_parallel_size 4, or expert_parallel_size 2"));
  CHECK_THAT(refusal(sizes_of({.world = 8, .dp = 1, .tp = 3}), 0),
             Contains("dense grid: TP 3 x PP 1 = 3 does not divide W 8") &&
                 Contains("legal tensor_parallel_size: 1, 2, 4, 8"));
}

TEST_CASE("folding: sizes that follow must agree where they are written") {
  DistributedConfig config = sizes_of({.world = 16, .dp = 3, .ep = 8, .tp = 4, .etp = 1});
  config.parallel_folding = true;
  config.dense_data_parallel_size = 8;
  // DDP = 16 / 4 = 4, EDP = 16 / 8 = 2: both faults in one refusal.
  CHECK_THAT(refusal(config, 8), Contains("DDP 8 x TP 4 x PP 1 = 32, but W is 16") &&
                                     Contains("legal dense_data_parallel_size: 4") &&
                                     Contains("data_parallel_size 3") && Contains("or 2"));
  config = sizes_of({.world = 8, .dp = 4, .ep = 2});
  config.dense_data_parallel_size = 4;
  CHECK_THAT(refusal(config, 8), Contains("without parallel_folding") && Contains("or 8"));
}

TEST_CASE("sizes beyond 64 bits are refused, not wrapped") {
  const int64_t huge = int64_t{1} << 40;
  CHECK_THAT(refusal(sizes_of({.world = 8, .dp = huge, .ep = huge, .tp = huge, .pp = huge}), 8),
             Contains("> W 8"));
  CHECK_THAT(
      refusal(sizes_of({.world = 0, .dp = -1}), 8),
      Contains("world_size is 0, must be at least 1") && Contains("data_parallel_size is -1"));
}
