// Rows of dense_training.csv and moe_training.csv: seconds of a training iteration.
#include <fmt/format.h>

#include "analysis/validate/kind.h"
#include "analysis/validate/padded_step.h"
#include "analysis/validate/step_run.h"
#include "analysis/validate/training_row.h"
#include "core/scenario/model_size.h"

namespace moetwin {
namespace {

/// MFU of a step, for rows that state nothing else.
Prediction mfu_of(const Scenario& s, const MakeCluster& make) {
  Prediction p = step_seconds(s, make);
  const double peak = make(s)->device().peak_flop_per_second;
  p.value = training_flop_per_step(s) /
            (p.value * peak * static_cast<double>(s.distributed_config.world_size));
  return p;
}

/// Dense FP16 peak of a V100, of whose table a rate of each GPU cannot be one.
constexpr double kFastestGpu = 125e12;
/// Model FLOP a second and GPU.
double model_rate(const Scenario& s, double seconds) {
  return training_flop_per_step(s) /
         (seconds * static_cast<double>(s.distributed_config.world_size));
}

/// What two rows share whose layouts can be compared: all but the layout and the micro-batch.
std::string workload(const PublishedRow& row, const Scenario& s) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}", row.series(), row.text("model"),
                     s.model_config.num_layers, s.model_config.sequence_length,
                     row.text("framework"), row.text("precision"), s.distributed_config.world_size,
                     s.training_config.global_batch_size);
}

std::string layout_of(const Scenario& s) {
  const DistributedConfig& d = s.distributed_config;
  return fmt::format("TP {} PP {} VP {} EP {} ETP {} ZeRO {} {} micro-batch {} recompute {}",
                     d.tensor_parallel_size, d.pipeline_parallel_size, d.virtual_pipeline_size,
                     d.expert_parallel_size, d.expert_tensor_parallel_size, d.zero_stage,
                     d.fsdp.sharding_strategy, s.training_config.micro_batch_size,
                     s.training_config.recompute);
}

void plan_training(const std::vector<PublishedRow>& rows, RowPlan& plan, bool experts) {
  for_each_row(rows, plan, [&](const PublishedRow& row, size_t i, RowResult& result) {
    TrainingRow work = read_training_row(row);
    if (work.other_hardware) result.standing = RowStanding::other_hardware;
    result.reason = work.reason;
    if (!work.reason.empty()) return;
    if (experts && row.has("metric") && !row.has("iter_time_s"))
      return refuse(result, "not an iteration: " + row.text("metric"));
    result.caveat = work.caveat;
    result.unit = "s";
    result.alternative_of = workload(row, work.scenario);
    result.layout = layout_of(work.scenario);
    result.measured = iteration_seconds(row, work.scenario);
    const bool as_mfu = result.measured == 0;
    if (const auto mfu = row.number("mfu_pct"); as_mfu && mfu) {
      result.measured = *mfu / 100;
      result.unit = "MFU";
    }
    if (!(result.measured > 0)) return refuse(result, "no time and no rate");
    if (!as_mfu && row.mentions("notes", "per GPU per second") &&
        model_rate(work.scenario, result.measured) > kFastestGpu)
      return refuse(result, "its rate is above any GPU's peak");
    plan.batches.push_back({{i},
                            [as_mfu, choices = work.padded_choices,
                             scenario = std::move(work.scenario)](const MakeCluster& make) {
                              return std::vector<Prediction>{
                                  as_mfu        ? mfu_of(scenario, make)
                                  : choices > 0 ? padded_step_seconds(scenario, choices, make)
                                                : step_seconds(scenario, make)};
                            }});
  });
}

}  // namespace

void plan_dense(const std::vector<PublishedRow>& rows, RowPlan& plan) {
  plan_training(rows, plan, false);
}

void plan_moe(const std::vector<PublishedRow>& rows, RowPlan& plan) {
  plan_training(rows, plan, true);
}

}  // namespace moetwin
