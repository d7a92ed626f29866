#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/core/scenario/texts.h"

using namespace moetwin;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("seed 001's dictionaries load unchanged") {
  const Scenario s = parse_scenario(kSeedScenario, "seed.json");
  CHECK(s.name == "seed");
  CHECK(s.model_config.model_type == "transformer_moe");
  CHECK(s.model_config.hidden_size == 4096);
  CHECK(s.model_config.num_layers == 32);
  CHECK(s.model_config.moe_layer_config.num_experts == 64);
  CHECK(s.model_config.moe_layer_config.top_k == 2);
  CHECK(s.model_config.moe_layer_config.moe_every_k_layers == 2);
  CHECK(s.model_config.moe_layer_config.aux_loss_factor == 0.01);
  CHECK(s.model_config.num_moe_layers() == 16);
  CHECK(s.model_config.expert_width() == 4 * 4096);
  CHECK(s.distributed_config.world_size == 16);
  CHECK(s.distributed_config.data_parallel_size == 8);
  CHECK(s.distributed_config.expert_parallel_size == 2);
  CHECK(s.distributed_config.comm_optimization.all_to_all_overlap);
  CHECK(s.distributed_config.distributed_backend == "nccl");
  CHECK(s.distributed_config.master_addr == "env://");
  CHECK(s.distributed_config.master_port == "env://");
  // Sixteen dense copies of micro-batches of one sequence: the default of 8 is rounded up.
  CHECK(s.training_config.global_batch_size == 16);
}

TEST_CASE("an empty scenario is all defaults") {
  const Scenario s = parse_scenario("{}", "empty.json");
  const Scenario defaults;
  CHECK(s.model_config.hidden_size == defaults.model_config.hidden_size);
  CHECK(s.training_config.global_batch_size == 8);
}

TEST_CASE("errors carry file, line, key, value, rule and legal values, all at once") {
  const std::string text = R"({
  "model_config": {
    "hidden_siz": 64,
    "num_layers": "four",
    "dropout": 1.5,
    "normalization": "batchnorm",
    "moe_layer_config": {"top_k": 0}
  },
  "trainin_config": {"steps": 3},
  "top_k": 2
})";
  const std::string message = refusal(text);
  CHECK_THAT(message, StartsWith("7 errors:\n"));
  CHECK_THAT(message,
             Contains("test.json:3: model_config.hidden_siz: unknown key, value 64; did you "
                      "mean model_config.hidden_size?"));
  CHECK_THAT(message,
             Contains("test.json:4: model_config.num_layers: \"four\" must be an integer of at "
                      "least 1 and at most 65536"));
  CHECK_THAT(message,
             Contains("test.json:5: model_config.dropout: 1.5 must be a number of at least 0 "
                      "and below 1"));
  CHECK_THAT(message, Contains("test.json:6: model_config.normalization: \"batchnorm\" must be one "
                               "of: layernorm, rmsnorm"));
  CHECK_THAT(message, Contains("test.json:7: model_config.moe_layer_config.top_k: 0 must be an "
                               "integer of at least 1 and at most 1024"));
  CHECK_THAT(message, Contains("test.json:9: trainin_config: unknown key, value {\"steps\":3}; did "
                               "you mean training_config?"));
  CHECK_THAT(message, Contains("test.json:10: top_k: unknown key, value 2; did you mean "
                               "model_config.moe_layer_config.top_k?"));
  CHECK(lines_in(message) == 8);
}

TEST_CASE("a key that resembles nothing lists what is legal there") {
  CHECK_THAT(
      refusal(R"({"memory": {"zzzzzzzzz": 1}})"),
      Contains("memory.zzzzzzzzz: unknown key") && Contains("legal here: on_exceed, poison"));
}

TEST_CASE("numbers are of their type") {
  CHECK_THAT(refusal(R"({"training_config": {"steps": 2.5}})"), Contains("2.5 must be an integer"));
  CHECK_THAT(refusal(R"({"training_config": {"steps": true}})"),
             Contains("true must be an integer"));
  CHECK_THAT(refusal(R"({"training_config": {"learning_rate": true}})"),
             Contains("true must be a number"));
  CHECK_THAT(refusal(R"({"training_config": {"seed": 1e30}})"), Contains("must be an integer"));
  CHECK_THAT(refusal(R"({"training_config": {"steps": null}})"),
             Contains("null must be an integer"));
  CHECK(refusal(R"({"training_config": {"steps": 1e3}})") == "accepted");
  CHECK_THAT(refusal(R"({"training_config": 3})"),
             Contains("training_config: 3 must be an object") && Contains("learning_rate"));
  CHECK_THAT(refusal(R"({"data": {"files": ["a", 3]}})"), Contains("must be a list of texts"));
  CHECK_THAT(refusal(R"({"output": {"routing_ranks": [0, -1]}})"),
             Contains("must be a list of integers, each at least 0"));
}

TEST_CASE("null means off where a key has that") {
  const Scenario s = parse_scenario(
      R"({"model_config": {"moe_layer_config": {"capacity_factor": null}},
          "training_config": {"router": {"schedule": null}, "expert": {"schedule": {"kind": "hold", "hold_steps": 5}}}})",
      "test.json");
  CHECK_FALSE(s.model_config.moe_layer_config.capacity_factor.has_value());
  CHECK_FALSE(s.training_config.router.schedule.has_value());
  REQUIRE(s.training_config.expert.schedule.has_value());
  CHECK(s.training_config.expert.schedule->hold_steps == 5);
  CHECK_THAT(refusal(R"({"training_config": {"schedule": null}})"), Contains("must be an object"));
}

TEST_CASE("syntax errors and duplicate keys are told with line and column") {
  CHECK_THAT(refusal("{\n  \"memory\": {\n    \"poison\": true,\n    \"poison\": false\n  }\n}"),
             StartsWith("test.json:4:") && Contains("uplicate key: 'poison'"));
  CHECK_THAT(refusal("{\n  \"memory\": \n}"), StartsWith("test.json:3:"));
  CHECK_THAT(refusal("[1, 2]"), Contains("test.json:1: a scenario is an object"));
  CHECK_THAT(refusal(""), StartsWith("test.json:1:"));
  CHECK_THAT(refusal("{} x"), StartsWith("test.json:1:"));
  CHECK_THAT(refusal(std::string(5000, '[')), StartsWith("test.json:1:"));
}

TEST_CASE("overrides obey the same table") {
  const Scenario s = parse_scenario(
      kSeedScenario, "seed.json",
      {"training_config.steps=7", "training_config.numerics=none", "memory.on_exceed=report",
       "training_config.learning_rate=3e-4", "data.files=a.txt",
       "data.validation_files=[\"b\",\"c\"]", "distributed_config.master_port=29500",
       "description=12", "training_config.router.schedule.kind=cosine"});
  CHECK(s.training_config.steps == 7);
  CHECK(s.training_config.numerics == "none");
  CHECK(s.training_config.learning_rate == 3e-4);
  CHECK(s.data.files == std::vector<std::string>{"a.txt"});
  CHECK(s.data.validation_files == std::vector<std::string>{"b", "c"});
  CHECK(s.distributed_config.master_port == "29500");
  CHECK(s.description == "12");
  REQUIRE(s.training_config.router.schedule.has_value());
  CHECK(s.training_config.router.schedule->kind == "cosine");
  CHECK_THAT(refusal("{}", {"training_config.steps=0"}),
             StartsWith("--set training_config.steps=0: training_config.steps: 0 must be"));
  CHECK_THAT(refusal("{}", {"steps=10"}),
             Contains("unknown key; did you mean training_config.steps?"));
  CHECK_THAT(refusal("{}", {"training_config.steps"}), Contains("write it as key=value"));
  // A value that is wrong in the file gives way to a right one; the last override wins.
  CHECK(refusal(R"({"training_config": {"steps": "x"}})", {"training_config.steps=1"}) ==
        "accepted");
  CHECK(parse_scenario("{}", "t.json", {"training_config.seed=1", "training_config.seed=2"})
            .training_config.seed == 2);
  // A rule broken by an override is told at the override.
  CHECK_THAT(refusal(kSeedScenario, {"distributed_config.data_parallel_size=4"}),
             Contains("= 8, but world_size is 16"));
}

TEST_CASE("a file may extend another; files are relative to the file that names them") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / "moetwin-test-extends";
  fs::remove_all(root);
  fs::create_directories(root / "bases");
  const auto write = [](const fs::path& path, const std::string& text) {
    std::ofstream(path) << text;
  };
  write(root / "bases" / "base.json",
        R"({"data": {"files": ["text/*.txt", "/abs.txt"]},
            "training_config": {"steps": 5, "micro_batch_size": 2}})");
  write(root / "mine.json",
        "{\"extends\": \"bases/base.json\",\n \"training_config\": {\"steps\": 6}}");
  const Scenario s = read_scenario((root / "mine.json").string());
  CHECK(s.name == "mine");
  CHECK(s.training_config.steps == 6);
  CHECK(s.training_config.micro_batch_size == 2);
  CHECK(s.data.files == std::vector<std::string>{"bases/text/*.txt", "/abs.txt"});
  CHECK(scenario_file(s, s.data.files[0]) == (root / "bases/text/*.txt").string());
  CHECK(scenario_file(s, s.data.files[1]) == "/abs.txt");

  write(root / "bases" / "base.json", "{\"extends\": \"../mine.json\"}");
  CHECK_THROWS_WITH(read_scenario((root / "mine.json").string()), Contains("comes back to a file"));
  write(root / "bases" / "base.json", "{\n\n\"seed\": 1}");
  CHECK_THROWS_WITH(read_scenario((root / "mine.json").string()),
                    Contains("base.json:3: seed: unknown key"));
  write(root / "mine.json", "{\"extends\": \"none.json\"}");
  CHECK_THROWS_WITH(read_scenario((root / "mine.json").string()),
                    Contains("mine.json:1: extends: cannot read"));
  CHECK_THROWS_WITH(read_scenario((root / "absent.json").string()), Contains("No such file"));
  CHECK_THROWS_WITH(read_scenario(root.string()), Contains("it is a directory"));
  fs::remove_all(root);
}
