// `moetwin run` as a user meets it when something is wrong or odd: exit codes and messages.

#include <json/json.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "tests/cli/run.h"
#include "tests/support/in_child.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

const char* const kSmall = R"({
  "model_config": {"hidden_size": 8, "num_layers": 2, "num_attention_heads": 2, "ffn_hidden_size": 8,
    "vocab_size": 17, "sequence_length": 7,
    "moe_layer_config": {"num_experts": 4, "top_k": 2, "expert_hidden_size": 8}},
  "distributed_config": {"world_size": 4, "data_parallel_size": 2, "expert_parallel_size": 2},
  "training_config": {"steps": 3, "validation_sequences": 3, "warmup_steps_excluded": 1},
  "data": {"format": "synthetic"},
  "cluster": {"profile": "toy-8gpu"},
  "memory": {"poison": true},
  "output": {"check_access": true}
})";

/// In a child: one simulation per process.
Ran run_small(const Folder& folder, const std::vector<std::string>& sets,
              const std::string& text = kSmall) {
  std::vector<std::string> arguments{
      "run", folder.write("small.json", text), "--quiet", "--out", folder.file("out"), "--threads",
      "1"};
  for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
  const std::string bytes = test::in_child([&] {
    const Ran ran = run(arguments);
    return std::to_string(ran.code) + "\n" + ran.err;
  });
  const size_t line = bytes.find('\n');
  return {std::stoi(bytes.substr(0, line)), "", bytes.substr(line + 1)};
}

}  // namespace

TEST_CASE("non-finite numbers end with exit code 6 and their place", "[P048]") {
  const Folder folder("run-non-finite");
  // A step of 1e30 leaves weights whose products overflow.
  const Ran ran =
      run_small(folder, {"training_config.learning_rate=1e30", "training_config.optimizer=sgd",
                         "training_config.max_grad_norm=0"});
  CHECK(ran.code == 6);
  CHECK_THAT(ran.err, Contains("non-finite router logit") && Contains("step 2") &&
                          Contains("layer 0") && Contains("rank ") && Contains("token "));
  // The record tells how far it came.
  Json::Value report;
  std::istringstream(folder.read("out/report.json")) >> report;
  CHECK(report["steps_asked"] == 3);
  CHECK(report["steps_done"] == 1);
}

TEST_CASE("configurations that cannot be end with exit code 2 before anything starts") {
  const Folder folder("run-refused");
  const auto refused = [&](const std::string& set) {
    const Ran ran = run_small(folder, {set});
    CHECK(ran.code == 2);
    CHECK_FALSE(std::filesystem::exists(folder.file("out")));
    return ran.err;
  };
  CHECK_THAT(refused("model_config.moe_layer_config.top_k=5"),
             Contains("top_k 5 exceeds num_experts 4") && Contains("legal top_k: 1 to 4"));
  CHECK_THAT(refused("distributed_config.world_size=6"),
             Contains("world_size") && Contains("6") && Contains("4"));
  CHECK_THAT(refused("model_config.moe_layer_config.drop_policy=prob"),
             Contains("\"prob\"") && Contains("position, probability"));
  CHECK_THAT(refused("routing.source=sinkhorn"), Contains("\"sinkhorn\"") && Contains("learned"));
  CHECK_THAT(refused("distributed_config.comm_optimization.all_to_all_chunks=0"),
             Contains("all_to_all_chunks: 0"));
}

TEST_CASE("a truncated .bin is refused with file and sizes, exit code 2") {
  const Folder folder("run-truncated");
  // llm.c's header promises 1,000 tokens of 2 bytes; 100 are there.
  std::vector<int32_t> header(256, 0);
  header[0] = 20240520, header[1] = 1, header[2] = 1000;
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  bytes.resize(1024 + 200, '\1');
  folder.write("short.bin", bytes);
  const Ran ran = run_small(folder, {"data.format=tokens", "data.files=[\"short.bin\"]"});
  CHECK(ran.code == 2);
  CHECK_THAT(ran.err, Contains("short.bin") && Contains("truncated") && Contains("1000 tokens"));
}

TEST_CASE(
    "odd but legal runs end well: odd chunks, one hot expert, an expert and a rank with none") {
  const Folder folder("run-odd");
  const auto fine = [&](const std::vector<std::string>& sets) {
    const Ran ran = run_small(folder, sets);
    INFO(ran.err);
    CHECK(ran.code == 0);
  };
  // 7 tokens in 3 and in 16 chunks.
  for (const char* chunks : {"3", "16"})
    fine({"distributed_config.comm_optimization.all_to_all_overlap=true",
          std::string("distributed_config.comm_optimization.all_to_all_chunks=") + chunks});
  fine({"routing.source=W1", "routing.workload.hot_fraction=1"});
  fine({"routing.source=W5", "routing.workload.zero_experts=2"});
  fine({"model_config.moe_layer_config.capacity_factor=0.01"});
}

TEST_CASE("a representative run writes the usual report, rescaled by --gpus") {
  const Folder folder("run-representative");
  const std::string file = folder.write("small.json", kSmall);
  std::vector<std::string> arguments{"run",
                                     file,
                                     "--quiet",
                                     "--numerics",
                                     "none",
                                     "--out",
                                     folder.file("out"),
                                     "--fidelity",
                                     "representative",
                                     "--set",
                                     "training_config.global_batch_size=8",
                                     "--gpus"};
  auto with = [&](const char* gpus) {
    std::vector<std::string> all = arguments;
    all.push_back(gpus);
    return run(all);
  };
  const Ran refused = with("5");
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("--gpus 5") && Contains("legal: multiples of 2"));
  REQUIRE(with("8").code == 0);
  Json::Value report;
  std::istringstream(folder.read("out/report.json")) >> report;
  CHECK(report["fidelity"] == "representative");
  CHECK(report["world_size"] == 8);
  CHECK(report["steps_done"] == 3);
  CHECK(report["memory"]["peak_bytes_per_rank"].size() == 8);
  CHECK(report["throughput"]["step_seconds_median"].asDouble() > 0);
  CHECK(folder.read("out/report.json").find("data_parallel_size 4 instead of 2") !=
        std::string::npos);
  const Ran full =
      run({"run", file, "--quiet", "--fidelity", "representative", "--out", folder.file("full")});
  CHECK(full.code == 2);
  CHECK_THAT(full.err, Contains("legal: numerics none, or"));
}
