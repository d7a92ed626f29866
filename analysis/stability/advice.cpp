#include "analysis/stability/advice.h"

#include <cmath>

namespace moetwin {

namespace {

constexpr const char* kGateRate = "training_config.router.learning_rate_multiplier";
constexpr const char* kNoise = "routing.noise";
constexpr const char* kBalance = "model_config.moe_layer_config.aux_loss_factor";
constexpr const char* kExpertInit = "model_config.moe_layer_config.expert_init_scale";
constexpr const char* kBias = "model_config.moe_layer_config.bias_update_rate";
constexpr const char* kCapacity = "model_config.moe_layer_config.capacity_factor";

}  // namespace

std::vector<Knob> oscillation_knobs(const LoadMetrics& metrics, const Oscillation&) {
  std::vector<Knob> knobs;
  if (!std::isnan(metrics.bias_flips))
    knobs.push_back({kBias, "0.01 or less, counts not late",
                     "a bias controller with late counts swings with a period of about four times "
                     "the delay; noise and averaged counts do not help"});
  knobs.push_back({kNoise, "gaussian, scale 0.1", "calms: churn -73% to -90%"});
  knobs.push_back(
      {kBalance, "0.01, together with the noise", "balances; alone it leaves the oscillation"});
  knobs.push_back({kGateRate, "a tenth", "with noise and balance loss the clean cure"});
  knobs.push_back({kExpertInit, "1", "stops it, but without a balance loss the router collapses"});
  if (metrics.dropped_share > 0.05)
    knobs.push_back({kCapacity, "2, or null", "dropped tokens amplify it"});
  knobs.push_back(
      {"model_config.moe_layer_config.top_k", "2, normalised weights", "did not oscillate"});
  return knobs;
}

std::vector<Knob> collapse_knobs() {
  return {{kBalance, "0.03", "with noise 0.1 and a faster router back to CV 0.23, drop 2%"},
          {kNoise, "gaussian, scale 0.1", "lets starved experts be tried"},
          {kGateRate, "three to ten times", "too slow a router cannot follow the balance loss"},
          {kBias, "0.001 to 0.01", "balances without a loss term"}};
}

std::vector<Knob> imbalance_knobs(const LoadMetrics& metrics) {
  std::vector<Knob> knobs = {{kBalance, "0.01 or more", "balances where the router learns"},
                             {kBias, "0.001 to 0.01", "balances without a loss term"},
                             {"distributed_config.expert_parallel_size", "another placement",
                              "hot experts on different ranks even out the ranks"}};
  if (metrics.dropped_share > 0.02)
    knobs.push_back({kCapacity, "higher, or null", "keeps the tokens that are dropped now"});
  return knobs;
}

std::vector<Knob> rotation_knobs() {
  return {{"data", "mix the order",
           "a hot set that moves on evenly usually follows the data, not the router"},
          {kGateRate, "a tenth", "if the probe batch moves too"},
          {kBalance, "0.01", "lowers the peak"}};
}

std::vector<Knob> divergence_knobs() {
  return {{"training_config.learning_rate", "a half to a tenth", "the usual cause"},
          {"training_config.max_grad_norm", "1", "bounds a single bad step"},
          {"training_config.schedule.warmup_steps", "more", "Adam's second moment lags at first"},
          {"model_config.moe_layer_config.z_loss_factor", "0.001", "keeps router logits small"}};
}

}  // namespace moetwin
