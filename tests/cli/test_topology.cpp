#include <catch2/catch.hpp>

#include "tests/cli/run.h"
#include "tests/core/scenario/texts.h"

using namespace moetwin;
using Catch::Matchers::Contains;

TEST_CASE("topology prints seed 001's eight ranks, groups and experts") {
  const Folder folder("topology");
  const Ran ran =
      run({"topology", folder.write("seed.json", kSeedScenario), "--set",
           "distributed_config.world_size=8", "--set", "distributed_config.data_parallel_size=4"});
  CHECK(ran.code == 0);
  CHECK_THAT(ran.out, Contains("{0,1} {2,3} {4,5} {6,7}") && Contains("{0,2,4,6} {1,3,5,7}"));
  CHECK_THAT(ran.out, Contains("64 per MoE layer, 32 on each rank, 4 copies of each"));
  CHECK_THAT(ran.out, Contains("5     0   0    5   0    2   1    0  experts 32–63"));
}

TEST_CASE("tensor and pipeline parallel layouts are printed") {
  const Folder folder("topology-tp");
  const Ran ran = run({"topology", folder.write("tp.json", R"({
    "model_config": {"moe_layer_config": {"num_experts": 4}},
    "distributed_config": {"world_size": 16, "data_parallel_size": 2, "expert_parallel_size": 2,
                           "tensor_parallel_size": 2, "pipeline_parallel_size": 2}})")});
  CHECK(ran.code == 0);
  CHECK_THAT(ran.out, Contains("W 16 = EDP 2 x EP 2 x ETP 2 x PP 2"));
  CHECK_THAT(ran.out, Contains("{0,8} {1,9}"));                     // PP
  CHECK_THAT(ran.out, Contains("{0,2} {1,3} {4,6} {5,7} {8,10}"));  // EP
}

TEST_CASE("a large world is cut short unless all is asked for") {
  const Folder folder("topology-large");
  const std::string file = folder.write("large.json", R"({
    "model_config": {"moe_layer_config": {"num_experts": 64}},
    "distributed_config": {"world_size": 1024, "data_parallel_size": 16, "expert_parallel_size": 64}})");
  const Ran brief = run({"topology", file});
  CHECK_THAT(brief.out, Contains("and 960 more ranks") && Contains("and 48 more"));
  CHECK_THAT(run({"topology", file, "--all"}).out, Contains("1023") && !Contains("more ranks"));
}

TEST_CASE("the picture is written, or the reason why not") {
  const Folder folder("topology-svg");
  const std::string file = folder.write("seed.json", kSeedScenario);
  const Ran ran = run({"topology", file, "--svg", folder.file("out.svg"), "--gpus-per-node", "4"});
  CHECK(ran.code == 0);
  CHECK_THAT(folder.read("out.svg"), Catch::Matchers::StartsWith("<svg") &&
                                         Contains("seed: world size 16 = DP 8") &&
                                         Contains("node 3 · 4 GPUs"));
  const Ran bad = run({"topology", file, "--svg", folder.file("none/out.svg")});
  CHECK(bad.code == 2);
  CHECK_THAT(bad.err, Contains("cannot write") && Contains("No such file"));
}

TEST_CASE("nodes are those of the cluster profile, or as told", "[P015]") {
  const Folder folder("topology-nodes");
  const std::string file = folder.write("seed.json", kSeedScenario);
  CHECK_THAT(run({"topology", file}).out, Contains("2 of 8 GPUs (dgx-a100-80g)"));
  CHECK_THAT(run({"topology", file, "--gpus-per-node", "1"}).out, Contains("16 of 1 GPUs"));
  const Ran unknown = run({"topology", file, "--set", "cluster.profile=none-such"});
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, Contains("none-such") && Contains("dgx-a100-80g"));
}
