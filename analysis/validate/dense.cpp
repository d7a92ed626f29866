// Rows of dense_training.csv: seconds of a training iteration.
#include "analysis/validate/kind.h"
#include "analysis/validate/step_run.h"
#include "analysis/validate/training_row.h"

namespace moetwin {

void plan_dense(const std::vector<PublishedRow>& rows, Plan& plan) {
  for_each_row(rows, plan, [&](const PublishedRow& row, size_t i, RowResult& result) {
    TrainingRow work = read_training_row(row);
    if (work.other_hardware) result.standing = Standing::other_hardware;
    result.reason = work.reason;
    if (!work.reason.empty()) return;
    result.caveat = work.caveat;
    result.unit = "s";
    result.measured = iteration_seconds(row, work.scenario);
    const bool as_mfu = result.measured == 0;
    if (const auto mfu = row.number("mfu_pct"); as_mfu && mfu) {
      result.measured = *mfu / 100;
      result.unit = "MFU";
    }
    if (!(result.measured > 0)) {
      refuse(result, "no time and no rate");
      return;
    }
    plan.batches.push_back(
        {{i}, [as_mfu, scenario = std::move(work.scenario)](const MakeCluster& make) {
           const Report report = run_steps(scenario, make);
           return std::vector<Prediction>{
               {as_mfu ? report.mfu : report.step_seconds_median, parts_text(report)}};
         }});
  });
}

}  // namespace moetwin
