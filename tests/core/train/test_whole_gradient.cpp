// Gradients of a whole training step against central differences of the whole loss, in fp64, along
// random directions: every kind of layer with every kind of neighbour.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/base/philox.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kDirections = 3;
constexpr double kStep = 1e-5;

/// The same sequences in every step.
class Repeated : public TokenSource {
 public:
  explicit Repeated(const Scenario& s)
      : length_(s.model_config.sequence_length),
        batch_(s.training_config.global_batch_size),
        vocab_(static_cast<uint32_t>(s.model_config.vocab_size)) {}
  int64_t sequences(Split) const override { return batch_; }
  void read(Split, int64_t, int32_t* tokens) const override {
    const PhiloxKey key = philox_key(5, Purpose::data, 1, 0);
    for (int64_t i = 0; i <= length_; ++i)
      tokens[i] = static_cast<int32_t>(philox_below(key, static_cast<uint64_t>(i), vocab_));
  }
  std::string description() const override { return "one sequence"; }

 private:
  int64_t length_, batch_;
  uint32_t vocab_;
};

/// Element i of direction `turn`; the last one moves the routers alone.
double direction(const std::string& name, size_t i, int64_t turn) {
  if (turn == kDirections - 1 && name.find("router") == std::string::npos) return 0;
  uint64_t hash = 1;
  for (const char c : name) hash = hash * 31 + static_cast<unsigned char>(c);
  return philox_normal(philox_key(hash, Purpose::init, 5, static_cast<uint32_t>(turn)), i);
}

/// Weights stay as they are (rate 0); after step 1 they are moved by +h and -h along each direction
/// in turns.
void check(Scenario s) {
  s.training_config.learning_rate = 0;
  s.training_config.steps = 1 + 2 * kDirections;
  s.training_config.global_batch_size = 2;  // two micro-batches
  const MoeLayerConfig& moe = s.model_config.moe_layer_config;
  TrainRunOptions options;
  options.data = [&] { return std::make_unique<Repeated>(s); };
  std::map<std::string, std::vector<double>> start;
  options.look_after_step = [&](Trainer& trainer, int64_t step) {
    for (const Parameter& p : trainer.parameters().all()) {
      std::vector<double>& from = start[p.name];
      if (step == 1) from = to_doubles(trainer, p.value);
      std::vector<double> moved = from;
      const double sign = step % 2 == 1 ? kStep : -kStep;
      for (size_t i = 0; i < moved.size(); ++i)
        moved[i] += sign * direction(p.name, i, (step - 1) / 2);
      trainer.context().device.write(p.value, moved.data(), trainer.context().streams.compute);
    }
    return std::vector<double>{};
  };
  options.look_at_row = [&](const StepRow& row) {
    return std::vector<double>{row.loss + moe.aux_loss_factor * row.aux +
                               moe.z_loss_factor * row.z +
                               moe.importance_loss_factor * row.importance};
  };
  const TrainResult result = train_in_child(s, options);
  REQUIRE(result.rows.size() == 1 + 2 * kDirections);
  for (int64_t turn = 0; turn < kDirections; ++turn) {
    double analytic = 0;
    for (const auto& [name, values] : result.gradients)
      for (size_t i = 0; i < values.size(); ++i) analytic += values[i] * direction(name, i, turn);
    const auto at = static_cast<size_t>(1 + 2 * turn);
    const double numeric = (result.rows[at] - result.rows[at + 1]) / (2 * kStep);
    CAPTURE(turn, analytic, numeric);
    CHECK(std::abs(analytic) > 1e-3);
    CHECK(numeric == Approx(analytic).epsilon(1e-5));
  }
}

Scenario with_losses() {
  Scenario s = small_training(1, 1, 4, 2, 1);
  MoeLayerConfig& moe = s.model_config.moe_layer_config;
  moe.aux_loss_factor = 1;
  moe.z_loss_factor = 0.1;
  moe.importance_loss_factor = 0.5;
  return s;
}

}  // namespace

TEST_CASE("layers 1 and 3 of four are MoE layers: their losses are means over two",
          "[P083][P080]") {
  Scenario s = with_losses();
  s.model_config.num_layers = 4;
  s.model_config.moe_layer_config.moe_every_k_layers = 2;
  check(s);
}

TEST_CASE("sigmoid scores, normalised and scaled weights, groups, a shared expert", "[P083]") {
  for (const double p : {0.0, 1.0, 2.0, 3.0}) {
    CAPTURE(p);
    Scenario s = with_losses();
    s.routing.score_function = "sigmoid";
    s.routing.normalize_weights = p;
    s.routing.weight_scale = 2.5;
    s.routing.groups = s.routing.kept_groups = 2;
    s.model_config.moe_layer_config.shared_expert_hidden_size = 8;
    s.model_config.moe_layer_config.shared_expert_weighted = true;
    check(s);
  }
}

TEST_CASE("normalised softmax weights of one, two and four choices", "[P083]") {
  for (const int64_t k : {1, 2, 4}) {
    CAPTURE(k);
    Scenario s = with_losses();
    s.model_config.moe_layer_config.top_k = k;
    s.routing.normalize_weights = 1;
    check(s);
  }
}

TEST_CASE("capacity by either policy, and the balance loss over the other scopes", "[P083]") {
  for (const char* policy : {"position", "probability"})
    for (const char* scope : {"sequence", "global_batch"}) {
      CAPTURE(policy, scope);
      Scenario s = with_losses();
      s.model_config.moe_layer_config.capacity_factor = 0.75;
      s.model_config.moe_layer_config.drop_policy = policy;
      s.model_config.moe_layer_config.aux_loss_scope = scope;
      check(s);
    }
}

TEST_CASE("RMS norms, rotary positions, grouped queries with norms, SwiGLU, no biases, own head") {
  Scenario s = with_losses();
  ModelConfig& m = s.model_config;
  m.normalization = "rmsnorm";
  m.position_embedding = "rotary";
  m.rotary_scaling_factor = 2;
  m.num_key_value_heads = 1;
  m.qk_norm = true;
  m.activation = m.moe_layer_config.expert_activation = "swiglu";
  m.attention_bias = m.ffn_bias = m.moe_layer_config.expert_bias = false;
  m.tie_embeddings = false;
  m.num_layers = 4;
  m.moe_layer_config.moe_every_k_layers = 2;
  check(s);
}

TEST_CASE("latent attention, with a latent of the queries and without, under YaRN; a dense layer",
          "[latent]") {
  for (const int64_t q_rank : {0, 5}) {
    CAPTURE(q_rank);
    Scenario s = with_losses();
    ModelConfig& m = s.model_config;
    m.attention = "multi_head_latent";
    m.latent_attention = {q_rank, 6, 3, 4, 2};
    m.normalization = "rmsnorm";
    m.position_embedding = "rotary";
    m.rotary_scaling = "yarn";
    m.rotary_scaling_factor = 4;
    m.yarn = {3, 2, 0.1, 1, 0.7};
    m.attention_bias = false;
    m.moe_layer_config.first_dense_layers = 1;
    check(s);
  }
}

TEST_CASE("norms of queries and keys over all heads", "[latent]") {
  Scenario s = with_losses();
  s.model_config.qk_norm = true;
  s.model_config.qk_norm_over = "projection";
  s.model_config.position_embedding = "rotary";
  check(s);
}

TEST_CASE("seed 000's layer: a dense FFN beside the experts; overlap in chunks") {
  Scenario s = with_losses();
  s.model_config.activation = "gelu_tanh";
  s.model_config.moe_layer_config.dense_ffn_beside_moe = true;
  s.distributed_config.comm_optimization.all_to_all_overlap = true;
  s.distributed_config.comm_optimization.all_to_all_chunks = 4;
  check(s);
}
