#pragma once
// Looks for the best way to train a scenario on a cluster: every point of the space that its rules
// allow and whose memory fits is estimated.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/plan/space.h"
#include "core/record/step_parts.h"

namespace moetwin {

/// What a step of a point costs; an estimator's answer.
struct PlanFigures {
  double step_seconds = 0, tokens_per_second = 0;
  double mfu = 0;             ///< NaN: unknown
  double dropped_share = 0;   ///< of assignments
  int64_t peak_bytes = 0;     ///< of the fullest rank, with context and communicators
  int64_t lasting_bytes = 0;  ///< of it: tensors that stay from step to step
  StepParts parts;            ///< mean over ranks
};

struct PlanResult {
  PlanPoint point;
  PlanFigures figures;
  double fluid_step_seconds = 0;  ///< of the confirmation; 0: not confirmed
};

struct PlanSearch {
  std::vector<PlanResult> fitting;            ///< fastest first: by tokens/s, then by less memory
  int64_t combinations = 0;                   ///< of the space, whose sizes make a grid
  int64_t refused = 0;                        ///< break a rule of scenarios
  std::map<std::string, int64_t> refused_by;  ///< by the key of the first broken rule
  int64_t state_too_large = 0;                ///< training state alone does not fit
  int64_t too_large = 0;       ///< state fits, with activations and buffers it does not
  int64_t slower_by_rule = 0;  ///< left out: recompute or offload where the same fits without
  int64_t beaten = 0;     ///< left out: the layout is too slow even without all-to-all and bubble
  int64_t dominated = 0;  ///< left out: something found is as fast with as little memory, even if
                          ///< gathering and reducing were free
  int64_t estimated = 0;
  /// Of those that do not fit the one with the lowest peak; its figures have no time where only its
  /// state was computed.
  std::optional<PlanResult> closest;
};

struct PlanMachine {
  int64_t gpus_per_node = 8;
  int64_t memory_bytes = 0;  ///< of a GPU
};

using EstimateStep = std::function<PlanFigures(const Scenario&)>;

/// `estimate` is called for points whose rules hold. First every layout with the first schedule and
/// overlap of the space, without what gathers weights layer by layer; then with that, which is the
/// costly part to estimate: not where something found is as fast, as small and drops as little even
/// if gathering and reducing were free. Then all the others of those layouts that would be the
/// fastest if they had no all-to-all and no bubble, which is the most that another schedule or
/// overlap can hide.
/// Deterministic. Throws Error(configuration) where no layout of the space makes a grid, with the
/// reason.
PlanSearch search_plan(const Scenario& scenario, const PlanSpace& space, const PlanMachine& machine,
                       const EstimateStep& estimate);

/// Which points of a layout: those with the first schedule and overlap that gather no weights,
/// those that do, all others, or the others only counted.
enum class PlanPass : uint8_t { simple, gathering, rest, count_rest };
struct PlanTask {
  PlanLayout layout;
  PlanPass pass = PlanPass::simple;
  std::shared_ptr<const std::vector<PlanResult>> known;  ///< a front; null: nothing is known
};
/// One task; nothing is ranked.
PlanSearch search_layout(const Scenario& scenario, const PlanSpace& space, const PlanTask& task,
                         const PlanMachine& machine, const EstimateStep& estimate);
/// The search by whoever does the tasks, each answered by search_layout.
using RunTasks = std::function<std::vector<PlanSearch>(const std::vector<PlanTask>&)>;
PlanSearch search_plan_by(const Scenario& scenario, const PlanSpace& space, const RunTasks& run);

/// Points that no other beats in throughput, memory and dropped share at once; fastest first.
std::vector<PlanResult> pareto_front(const std::vector<PlanResult>& fitting);

/// How likely the first of two predicted times is the lower one in truth when each is off by an
/// independent normal error (of the logarithm) whose absolute value has the median `median_error`:
/// Phi(ln(b / a) / (sqrt(2) sigma)), sigma = median / 0.6745.
double chance_faster(double a_seconds, double b_seconds, double median_error);

/// GPU hours for that many tokens.
double gpu_hours(double tokens, double tokens_per_second, int64_t gpus);

}  // namespace moetwin
