// Models of Mixtral, Qwen3-MoE, OLMoE and DeepSeek-V3 as the transformers package saved them must
// have the logits here that they had there, on one rank and over several.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/train/huggingface/import_weights.h"
#include "tests/core/train/huggingface/fixture.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr double kTolerance = 1e-4;

/// Token ids and logits [sequences, tokens, vocabulary] that transformers computed.
struct Expected {
  int64_t sequences = 0, tokens = 0, vocabulary = 0;
  std::vector<int32_t> ids;
  std::vector<float> logits;
};

Expected read_expected(const std::string& directory) {
  const SafetensorsFile file(directory + "/expected.safetensors");
  const SafetensorsEntry &ids = *file.find("ids"), &logits = *file.find("logits");
  Expected e;
  e.sequences = logits.shape[0], e.tokens = logits.shape[1], e.vocabulary = logits.shape[2];
  e.ids.resize(static_cast<size_t>(e.sequences * e.tokens));
  e.logits.resize(static_cast<size_t>(e.sequences * e.tokens * e.vocabulary));
  std::memcpy(e.ids.data(), file.data(ids), e.ids.size() * sizeof(int32_t));
  std::memcpy(e.logits.data(), file.data(logits), e.logits.size() * sizeof(float));
  return e;
}

class Given : public TokenSource {
 public:
  explicit Given(const Expected& e) : e_(e) {}
  int64_t sequences(Split) const override { return e_.sequences; }
  void read(Split, int64_t i, int32_t* tokens) const override {
    std::copy_n(e_.ids.begin() + static_cast<std::ptrdiff_t>(i * e_.tokens), e_.tokens, tokens);
    tokens[e_.tokens] = 0;
  }
  std::string description() const override { return "ids of a fixture"; }

 private:
  const Expected& e_;
};

/// Logits of sequences, each [tokens, vocabulary], in the order in which they were evaluated: from
/// what each rank has of them, classes split over `tp`.
std::vector<std::vector<double>> sequences_of(const std::vector<std::vector<double>>& seen,
                                              const Expected& e, int64_t tp) {
  const int64_t part = (e.vocabulary + tp - 1) / tp;
  std::vector<std::vector<double>> all;
  for (size_t first = 0; first < seen.size(); first += static_cast<size_t>(tp)) {
    const auto count = static_cast<int64_t>(seen[first].size()) / (e.tokens * part);
    for (int64_t s = 0; s < count; ++s) {
      std::vector<double> logits;
      for (int64_t t = s * e.tokens; t < (s + 1) * e.tokens; ++t)
        for (int64_t v = 0; v < e.vocabulary; ++v)
          logits.push_back(seen[first + static_cast<size_t>(v / part)]
                               [static_cast<size_t>(t * part + v % part)]);
      all.push_back(std::move(logits));
    }
  }
  return all;
}

double difference(const std::vector<double>& a, const Expected& e, int64_t sequence) {
  double worst = 0;
  const auto size = static_cast<size_t>(e.tokens * e.vocabulary);
  for (size_t i = 0; i < size; ++i)
    worst = std::max(worst,
                     std::abs(a[i] - double(e.logits[static_cast<size_t>(sequence) * size + i])));
  return worst;
}

void check(const std::string& name, const std::vector<std::string>& layout = {}) {
  const std::string directory = model_directory(name);
  const Expected e = read_expected(directory);
  const Scenario s = model_scenario(directory, layout);
  const TemporaryDirectory temporary;
  import_huggingface_weights(directory, s, temporary / "weights", *system_files());
  const Checkpoint weights(temporary / "weights");
  TrainRunOptions options;
  options.tensors = false;
  options.data = [&] { return std::make_unique<Given>(e); };
  options.prepare = [&](TrainerServices& services) { services.resume = &weights; };
  options.look_after_step = [&](Trainer& trainer, int64_t) {
    std::vector<double> all;
    for (const Tensor& logits : trainer.logits(e.sequences)) {
      const std::vector<double> values = to_doubles(trainer, logits);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const TrainResult result = train_in_child(s, options);
  const auto got = sequences_of(result.seen, e, s.distributed_config.tensor_parallel_size);
  // Training shuffles sequences: each must be one of the expected ones, and all must be there.
  REQUIRE(static_cast<int64_t>(got.size()) == e.sequences);
  std::vector<double> best(got.size(), HUGE_VAL);
  for (const auto& logits : got)
    for (size_t i = 0; i < best.size(); ++i)
      best[i] = std::min(best[i], difference(logits, e, static_cast<int64_t>(i)));
  for (const double worst : best) CHECK(worst <= kTolerance);
}

const std::vector<std::string> kExpertsAndTensors{"distributed_config.world_size=4",
                                                  "distributed_config.expert_parallel_size=2",
                                                  "distributed_config.tensor_parallel_size=2"};

}  // namespace

TEST_CASE("Mixtral: grouped keys, in shards with an index", "[huggingface]") {
  check("mixtral");
  check("mixtral", kExpertsAndTensors);
}

TEST_CASE("Qwen3-MoE: norms per head, a dense layer, tied embeddings; fp16", "[huggingface]") {
  check("qwen3_moe");
  check("qwen3_moe", kExpertsAndTensors);
}

TEST_CASE("OLMoE: norms over all heads, weights not normalised; bf16", "[huggingface]") {
  check("olmoe");
  check("olmoe", {"distributed_config.world_size=4", "distributed_config.expert_parallel_size=4"});
}

TEST_CASE("DeepSeek-V3: latent attention under YaRN, a dense layer first, groups with a bias",
          "[huggingface]") {
  check("deepseek_v3");
  check("deepseek_v3", kExpertsAndTensors);
  check("deepseek_v3",
        {"distributed_config.world_size=4", "distributed_config.expert_parallel_size=2",
         "distributed_config.pipeline_parallel_size=2"});
}
