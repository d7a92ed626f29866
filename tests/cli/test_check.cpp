#include <catch2/catch.hpp>

#include "tests/cli/run.h"
#include "tests/core/scenario/texts.h"

using namespace moetwin;
using Catch::Matchers::Contains;

TEST_CASE("check tells what seed 001's scenario means") {
  const Folder folder("check");
  const Ran ran = run({"check", folder.write("seed.json", kSeedScenario)});
  CHECK(ran.code == 0);
  CHECK(ran.err.empty());
  CHECK_THAT(ran.out, Contains("seed.json: valid"));
  CHECK_THAT(ran.out, Contains("W 16 = EDP 8 x EP 2 x ETP 1 x PP 1") &&
                          Contains("W 16 = DDP 16 x TP 1 x PP 1"));
  CHECK_THAT(ran.out, Contains("16 MoE layers, every 2: 64 experts of width 16384, top-2"));
  // 16 layers x 64 experts x (2 x 4096 x 16384 + 16384 + 4096) = 137.46 G, of which 2 / 64 work.
  CHECK_THAT(ran.out, Contains("137.46G") && Contains("4.30G"));
  // Half of them on a rank, 16 bytes each: 1.00 TiB.
  CHECK_THAT(ran.out, Contains("1.00 TiB"));
  CHECK_THAT(ran.out, Contains("4 + 4 + 8 bytes a parameter"));
  CHECK_THAT(ran.out, Contains("A100-SXM4-80GB has ") && Contains("too little by "));
  CHECK_THAT(ran.out, Contains("{0,2,4,6,8,10,12,14} {1,3,5,7,9,11,13,15}"));
}

TEST_CASE("check prints every active loss term and names those that are off", "[P095][P082]") {
  const Folder folder("check-loss");
  const std::string file = folder.write("seed.json", kSeedScenario);
  Ran ran = run({"check", file});
  CHECK_THAT(ran.out, Contains("Loss         cross-entropy") && Contains("+ 0.01 x load balance") &&
                          Contains("mean of 16 layers"));
  CHECK_THAT(ran.out, Contains("off: z_loss_factor, importance_loss_factor, load_variance_factor, "
                               "bias_update_rate"));
  ran = run({"check", file, "--set", "model_config.moe_layer_config.z_loss_factor=0.001", "--set",
             "model_config.moe_layer_config.aux_loss_factor=0"});
  CHECK_THAT(ran.out, Contains("+ 0.001 x router z-loss") && Contains("off: aux_loss_factor"));
  // A default that switches a loss on is told too: this file has no auxiliary field at all.
  ran = run({"check", folder.write("plain.json", R"({"model_config": {"moe_layer_config":
             {"num_experts": 4}}})")});
  CHECK_THAT(ran.out, Contains("+ 0.01 x load balance"));
  ran = run(
      {"check", folder.write("dense.json",
                             R"({"model_config": {"moe_layer_config": {"aux_loss_factor": 1}}})")});
  CHECK_THAT(ran.out, Contains("coefficient set but loss off"));
}

TEST_CASE("check shows hidden sharding and ZeRO-1", "[P021][P011]") {
  const Folder folder("check-sharding");
  const std::string file = folder.write("p021.json", R"({
    "model_config": {"moe_layer_config": {"num_experts": 2, "expert_hidden_size": 128}},
    "distributed_config": {"world_size": 4, "expert_parallel_size": 4, "zero_stage": 1}})");
  const Ran ran = run({"check", file});
  CHECK(ran.code == 0);
  CHECK_THAT(ran.out, Contains("hidden sharding 2, F 128 -> 64"));
  CHECK_THAT(ran.out,
             Contains("optimizer state of dense parameters over 4 ranks, of experts over 1 "
                      "(one copy of each expert: not sharded further)"));
}

TEST_CASE("check prints what type each class of tensors has", "[P101]") {
  const Folder folder("check-types");
  const std::string file = folder.write("seed.json", kSeedScenario);
  CHECK_THAT(run({"check", file, "--set", "training_config.dtype=bf16"}).out,
             Contains("types: activations and weights bf16; routers (weights, logits, scores, "
                      "balance bias), gradients, optimizer state and master weights fp32"));
  CHECK_THAT(run({"check", file}).out,
             Contains("types: activations and weights fp32") && !Contains("master weights"));
}

TEST_CASE("check shows layouts, and refuses to estimate with numbers") {
  const Folder folder("check-tp");
  const std::string file = folder.write("tp.json", R"({"distributed_config":
      {"world_size": 4, "tensor_parallel_size": 2, "pipeline_parallel_size": 2},
      "cluster": {"fidelity": "representative"}})");
  const Ran ran = run({"check", file, "--set", "training_config.numerics=none"});
  CHECK(ran.code == 0);
  CHECK_THAT(ran.out, Contains("DDP 1 x TP 2 x PP 2") && Contains("{0,1} {2,3}"));
  const Ran refused = run({"check", file});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("cluster.fidelity") && Contains("legal: numerics none, or"));
}

TEST_CASE("a wrong scenario ends with exit code 2 and every error", "[P010]") {
  const Folder folder("check-errors");
  const Ran ran = run({"check", folder.write("bad.json", R"({
    "distributed_config": {"world_size": 4, "expert_parallel_size": 8},
    "model_config": {"hiden_size": 3}})")});
  CHECK(ran.code == 2);
  CHECK(ran.out.empty());
  CHECK_THAT(ran.err, Contains("2 errors") && Contains("legal expert_parallel_size: 1, 2, 4") &&
                          Contains("did you mean model_config.hidden_size?"));
  CHECK(run({"check", folder.file("absent.json")}).code == 2);
  CHECK(run({"check"}).code == 2);
}

TEST_CASE("FILE may be named as torchrun's and DeepSpeed's launch lines do") {
  const Folder folder("check-names");
  const std::string file = folder.write("seed.json", kSeedScenario);
  const std::string expected = run({"check", file}).out;
  CHECK(run({"check", "--config", file}).out == expected);
  CHECK(run({"check", "--deepspeed_config", file}).out == expected);
}

TEST_CASE("help has examples; a wrong command line is a configuration error") {
  const Ran help = run({"--help"});
  CHECK(help.code == 0);
  for (const Verb& verb : verbs()) {
    CHECK_THAT(help.out, Contains(verb.name));
    const Ran one = run({verb.name, "--help"});
    CHECK(one.code == 0);
    CHECK_THAT(one.out, Contains("Examples:\n  moetwin " + std::string(verb.name)));
  }
  CHECK(run({}).code == 2);
  const Ran unknown = run({"chek"});
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, Contains("unknown verb 'chek'; legal: ") && Contains("check, topology"));
  CHECK(run({"check", "--nonsense"}).code == 2);
}
