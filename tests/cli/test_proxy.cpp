// A small router drives a large cluster, as a user runs it.

#include <catch2/catch.hpp>

#include "analysis/result/run.h"
#include "tests/cli/run.h"

namespace moetwin {
namespace {

constexpr const char* kSmall = R"({
  "model_config": {"hidden_size": 16, "num_layers": 1, "num_attention_heads": 1, "vocab_size": 16, "sequence_length": 8,
                   "moe_layer_config": {"num_experts": 4, "expert_hidden_size": 16}},
  "distributed_config": {"world_size": 2, "data_parallel_size": 2},
  "training_config": {"steps": 6, "global_batch_size": 8},
  "data": {"format": "synthetic"}, "cluster": {"profile": "toy-8gpu"}})";

constexpr const char* kLarge = R"({
  "model_config": {"hidden_size": 256, "num_layers": 3, "num_attention_heads": 2, "vocab_size": 64, "sequence_length": 512,
                   "moe_layer_config": {"num_experts": 4, "expert_hidden_size": 256}},
  "distributed_config": {"world_size": 16, "data_parallel_size": 4, "expert_parallel_size": 4},
  "training_config": {"steps": 6, "global_batch_size": 16, "numerics": "none"},
  "routing": {"source": "proxy", "scenario": "small.json"},
  "data": {"format": "synthetic"}, "cluster": {"profile": "dgx-a100-80g"}})";

struct InFolder {
  std::filesystem::path before = std::filesystem::current_path();
  explicit InFolder(const std::string& path) { std::filesystem::current_path(path); }
  ~InFolder() { std::filesystem::current_path(before); }
};

std::string only_proxy() {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator("runs")) {
    CHECK(found.empty());
    found = entry.path().string();
  }
  return found;
}

double share(const LayerSeries& layer, size_t step, size_t expert) {
  double sum = 0;
  for (size_t e = 0; e < 4; ++e) sum += layer.load[step * 4 + e];
  return layer.load[step * 4 + expert] / sum;
}

/// The first number of that key in a text of JSON.
double figure_of(const std::string& text, const std::string& key) {
  const std::string member = "\"" + key + "\"";
  const size_t at = text.find(member);
  REQUIRE(at != std::string::npos);
  return std::stod(text.substr(text.find(':', at) + 1));
}

TEST_CASE("a proxy is trained once, and the large run routes as it did") {
  const Folder folder("proxy");
  folder.write("small.json", kSmall);
  folder.write("large.json", kLarge);
  const InFolder here(folder.file("."));
  // Each in a child: one simulation a process.
  const std::vector<std::string> words{"sweep", "large.json", "--over", "training_config.seed=1,2",
                                       "--out", "sweep"};
  const Ran first = run(words);
  INFO(first.err);
  REQUIRE(first.code == 0);
  CHECK(first.err.find("training the proxy small, 6 steps") != std::string::npos);
  const std::string proxy = only_proxy();
  CHECK(proxy.find("runs/proxy-small-") != std::string::npos);
  const Run small = read_run(proxy), large = read_run("sweep/points/0000");
  // Three layers stand for one; a source has 512 x 2 assignments a step, 16 of them 16,384: the
  // scatter of a share around what the proxy's router wanted is below sqrt(0.25 / 16384) x 4
  // = 1.6%, the proxy's own around that sqrt(0.25 / 128) = 4.4%.
  REQUIRE(large.routing.layers.size() == 3);
  for (const auto& layer : large.routing.layers)
    for (size_t e = 0; e < 4; ++e) {
      double wanted = 0, got = 0;
      for (size_t s = 0; s < 6; ++s) {
        wanted += share(small.routing.layers[0], s, e) / 6;
        got += share(layer, s, e) / 6;
      }
      CHECK(got == Approx(wanted).margin(0.03));
    }
  const auto trained = std::filesystem::last_write_time(proxy + "/report.json");
  std::filesystem::remove_all("sweep");
  CHECK(run(words).code == 0);
  CHECK(std::filesystem::last_write_time(proxy + "/report.json") == trained);
}

TEST_CASE("a plan of a run whose routing changes is of the steps that the run measures") {
  const Folder folder("proxy-plan");
  folder.write("small.json", kSmall);
  folder.write("large.json", kLarge);
  const InFolder here(folder.file("."));
  REQUIRE(
      run({"sweep", "large.json", "--over", "training_config.steps=6", "--out", "sweep"}).code ==
      0);
  const double median =
      figure_of(folder.read("sweep/points/0000/report.json"), "step_seconds_median");
  std::vector<std::string> plan{"plan", "large.json", "--json", "--confirm", "1"};
  for (const char* held :
       {"distributed_config.expert_parallel_size=4", "distributed_config.tensor_parallel_size=1",
        "distributed_config.pipeline_parallel_size=1",
        "distributed_config.fsdp.sharding_strategy=NO_SHARD", "training_config.micro_batch_size=1",
        "distributed_config.comm_optimization.all_to_all_overlap=false",
        "training_config.recompute=none"}) {
    plan.push_back("--over");
    plan.push_back(held);
  }
  const Ran planned = run(plan);
  INFO(planned.err);
  REQUIRE(planned.code == 0);
  const std::string ranking = planned.out.substr(planned.out.find("\"ranking\""));
  CHECK(figure_of(ranking, "fluid_step_seconds") == Approx(median).epsilon(1e-6));
  CHECK(figure_of(ranking, "step_seconds") == Approx(median).epsilon(0.03));
}

}  // namespace
}  // namespace moetwin
