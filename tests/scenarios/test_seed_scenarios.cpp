// The two scenarios of the guide (16 GPUs, DP=8 x EP=2 against DP=2 x EP=8) must show what the
// guide says: expert memory a GPU falls with EP, all-to-all traffic rises.

#include <catch2/catch.hpp>

#include "tests/scenarios/run_scenario.h"

using namespace moetwin::test;

namespace {

constexpr double kHidden = 4096, kLayers = 32, kMoeLayers = 16, kExperts = 64, kVocabulary = 32000,
                 kSequence = 2048;

Json::Value run(const std::string& name, std::vector<std::string> options = {}) {
  const TemporaryDirectory directory;
  const std::string out = directory.path() + "/run";
  const RunOutcome outcome = run_scenario(name, out, std::move(options));
  INFO(outcome.errors);
  REQUIRE(outcome.exit_code == 0);
  return report_of(out);
}

double of_class(const Json::Value& report, const char* memory_class) {
  return report["memory"]["classes"][memory_class].asDouble();
}

/// Weights and biases of one expert of width F.
double expert_parameters(double width) { return 2 * kHidden * width + width + kHidden; }

/// All else on a rank: embedding, positions, attention, norms, dense FFN of every other layer,
/// router.
double dense_parameters() {
  const double attention = 4 * kHidden * kHidden + 4 * kHidden, norms = 4 * kHidden;
  const double ffn = 8 * kHidden * kHidden + 5 * kHidden;
  return (kVocabulary + kSequence) * kHidden + 2 * kHidden + kLayers * (attention + norms) +
         (kLayers - kMoeLayers) * ffn + kMoeLayers * kHidden * kExperts;
}

}  // namespace

TEST_CASE("more expert parallelism: a quarter of the expert memory, more all-to-all") {
  const Json::Value dp = run("seed-high-dp.json"), ep = run("seed-high-ep.json");
  // fp32: 4 bytes a weight; 32 and 8 experts a layer on each rank. Alignment adds less than 1 in
  // 10^4.
  const double width = 4 * kHidden, dense = dense_parameters();
  const double expected_dp = 4 * (dense + kMoeLayers * 32 * expert_parameters(width));
  const double expected_ep = 4 * (dense + kMoeLayers * 8 * expert_parameters(width));
  CHECK(of_class(dp, "parameters") == Approx(expected_dp).epsilon(1e-4));
  CHECK(of_class(ep, "parameters") == Approx(expected_ep).epsilon(1e-4));
  const double experts_dp = of_class(dp, "parameters") - 4 * dense,
               experts_ep = of_class(ep, "parameters") - 4 * dense;
  CHECK(experts_dp / experts_ep == Approx(4).epsilon(1e-3));
  // A balanced router sends (EP - 1) / EP of all assignments to other ranks: 1/2 against 7/8, four
  // times a layer (dispatch, combine and their backward), 4 bytes an element; the exchange of
  // counts is nothing beside it.
  const double assignments = 64 * kSequence * 2;  // sequences a step, tokens, top-2
  const double bytes = 4 * kMoeLayers * assignments * kHidden * 4;
  CHECK(dp["traffic"]["all_to_all_bytes_per_step"].asDouble() == Approx(bytes / 2).epsilon(1e-3));
  CHECK(ep["traffic"]["all_to_all_bytes_per_step"].asDouble() ==
        Approx(bytes * 7 / 8).epsilon(1e-3));
  // 1.2 TB and 0.36 TB: far beyond 80 GB, and the report says so.
  CHECK(dp["memory"]["peak_bytes_per_rank"][0].asDouble() / 1e12 == Approx(1.2).epsilon(0.03));
  CHECK(ep["memory"]["peak_bytes_per_rank"][0].asDouble() / 1e12 == Approx(0.36).epsilon(0.04));
  for (const Json::Value& report : {dp, ep}) {
    REQUIRE(report["verdicts"].size() == 1);
    CHECK(report["verdicts"][0]["kind"] == "out_of_memory");
  }
}

TEST_CASE("without expert parallelism there is neither") {
  const Json::Value r =
      run("seed-high-dp.json",
          {"--set", "distributed_config.data_parallel_size=16", "--set",
           "distributed_config.expert_parallel_size=1", "--set", "training_config.steps=2"});
  CHECK(r["traffic"]["all_to_all_bytes_per_step"].asDouble() == 0);
  CHECK(of_class(r, "parameters") ==
        Approx(4 * (dense_parameters() + kMoeLayers * 64 * expert_parameters(4 * kHidden)))
            .epsilon(1e-4));
}

TEST_CASE("the fitting variants fit an 80 GB GPU") {
  for (const char* name : {"seed-high-dp-fits.json", "seed-high-ep-fits.json"}) {
    const Json::Value r = run(name);
    INFO(name);
    CHECK(r["verdicts"].size() == 0);
    for (const Json::Value& bytes : r["memory"]["peak_bytes_per_rank"])
      CHECK(bytes.asDouble() < r["memory"]["capacity_bytes"].asDouble());
  }
}

TEST_CASE(
    "hybrid sharding with offload: shares in host memory, whole layers only while they are used") {
  const Json::Value r = run("seed-fsdp.json");
  CHECK(r["verdicts"].size() == 0);
  const double hidden = 2048, layers = 24, width = 4 * hidden;
  const double expert = layers * 8 * (2 * hidden * width + width + hidden);
  // Embedding, positions, last norm; per layer two norms, attention, dense FFN. Scripted routers
  // have no weights, but the stand-in of a learned one computes with them.
  const double dense = (32000 + 1024) * hidden + 2 * hidden +
                       layers * (4 * hidden + 4 * hidden * hidden + 4 * hidden +
                                 2 * hidden * width + width + hidden + hidden * 16);
  // A node has 8 copies of the dense parameters and 4 of each expert.
  const double share = dense / 8 + expert / 4;
  CHECK(r["memory"]["host_bytes"].asDouble() == Approx(12 * share).epsilon(1e-3));
  // Two layers are gathered at most; the embedding is as large as half of one.
  CHECK(of_class(r, "parameters") < 3 * 2 * (dense + expert) / layers);
  const double peak = r["memory"]["peak_bytes_per_rank"][0].asDouble();
  CHECK(peak > 4 * share);
  CHECK(peak < 18 * (dense + expert) / 4);
}

TEST_CASE(
    "memory beyond the GPU stops a run that does not ask for a report, with nothing left behind") {
  const TemporaryDirectory directory;
  const std::string out = directory.path() + "/run";
  const RunOutcome outcome =
      run_scenario("seed-high-dp.json", out, {"--set", "memory.on_exceed=stop"});
  CHECK(outcome.exit_code == 3);
  for (const char* part : {"rank ", "step ", "gradients", "GiB"})
    CHECK(outcome.errors.find(part) != std::string::npos);
}
