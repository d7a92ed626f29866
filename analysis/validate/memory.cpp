// Rows of memory.csv: bytes on a GPU.
#include <algorithm>
#include <cmath>

#include "analysis/validate/framework_memory.h"
#include "analysis/validate/kind.h"
#include "analysis/validate/memory_row.h"
#include "analysis/validate/step_run.h"
#include "analysis/validate/training_row.h"

namespace moetwin {
namespace {

/// Shares of the fullest rank's peak.
std::string classes_text(const Report& report) {
  const double peak = static_cast<double>(
      *std::max_element(report.peak_bytes_per_rank.begin(), report.peak_bytes_per_rank.end()));
  std::string text;
  for (int i = 0; i < kMemoryClasses; ++i) {
    const auto bytes = static_cast<double>(report.classes_of_fullest[static_cast<size_t>(i)]);
    if (bytes >= 0.01 * peak)
      text += (text.empty() ? "" : ", ") +
              std::string(memory_class_name(static_cast<MemoryClass>(i))) + " " +
              std::to_string(static_cast<int>(100 * bytes / peak + 0.5)) + "%";
  }
  return text;
}

double most(const std::vector<int64_t>& bytes) {
  return static_cast<double>(*std::max_element(bytes.begin(), bytes.end()));
}

/// What is told of the first stage needs the estimator; a whole GPU's peak does not.
Prediction bytes_of(const Report& report, const std::vector<StageMemory>& stages,
                    MemoryShare share) {
  Prediction p;
  p.note = classes_text(report);
  switch (share) {
    case MemoryShare::peak:
      p.value = most(report.peak_bytes_per_rank);
      return p;
    case MemoryShare::reserved:
      p.value = static_cast<double>(report.reserved_bytes);
      return p;
    case MemoryShare::device:
      p.value = most(report.device_bytes_per_rank);
      return p;
    default:
      break;
  }
  if (stages.empty()) {
    p.note = "told apart by fidelity representative only";
    return p;
  }
  const StageMemory& first = stages.front();
  p.value = static_cast<double>(share == MemoryShare::states      ? first.states
                                : share == MemoryShare::optimizer ? first.optimizer
                                : share == MemoryShare::kept      ? first.kept
                                                                  : first.peak - first.states);
  return p;
}

/// Of what the framework keeps of parameters; fidelity representative only, whose stages tell.
Prediction predict(const PublishedRow& row, const Scenario& scenario, const MakeCluster& make,
                   MemoryShare share) {
  if (!make.estimates())
    return estimate(
        scenario, make, [share](const Report& r) { return bytes_of(r, {}, share); }, false);
  StepEstimate step = make.estimate(scenario);
  for (size_t s = 0; s < step.stages.size(); ++s) {
    const auto more = static_cast<int64_t>(more_for_states(row, scenario, step.stages[s]));
    step.report.peak_bytes_per_rank[s] += more;
    step.report.device_bytes_per_rank[s] += more;
  }
  // Blocks of the caching allocator are not estimated: at least what tensors need.
  step.report.reserved_bytes = static_cast<int64_t>(most(step.report.peak_bytes_per_rank));
  return bytes_of(step.report, step.stages, share);
}

/// Activations kept, over those of the same model with tensor parallelism alone.
Prediction relative(const PublishedRow& row, Scenario scenario, const MakeCluster& make) {
  Prediction p = predict(row, scenario, make, MemoryShare::kept);
  scenario.training_config.recompute = "none";
  scenario.distributed_config.sequence_parallel = false;
  p.value /= predict(row, scenario, make, MemoryShare::kept).value;
  return p;
}

}  // namespace

void plan_memory(const std::vector<PublishedRow>& rows, RowPlan& plan) {
  for_each_row(rows, plan, [&](const PublishedRow& row, size_t i, RowResult& result) {
    const MemoryRow memory = read_memory_row(row);
    TrainingRow work;
    if (memory.reason.empty() && memory.share != MemoryShare::saved_by_op) {
      work = read_training_row(memory.training);
      if (work.other_hardware) result.standing = RowStanding::other_hardware;
      result.reason = work.reason;
      if (!work.reason.empty()) return;
    }
    if (!memory.reason.empty()) return refuse(result, memory.reason);
    result.measured = memory.measured;
    result.unit = memory.unit;
    result.caveat = work.caveat;
    plan.batches.push_back(
        {{i}, [memory, scenario = std::move(work.scenario)](const MakeCluster& make) {
           Prediction p;
           if (memory.share == MemoryShare::saved_by_op)
             p = {memory.saved, "what its kernels write for the backward"};
           else if (memory.share == MemoryShare::relative)
             p = relative(memory.training, scenario, make);
           else
             p = predict(memory.training, scenario, make, memory.share);
           return std::vector<Prediction>{p};
         }});
  });
}

}  // namespace moetwin
