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

#include "analysis/plan/result.h"

namespace moetwin {

struct PlanSearch {
  std::vector<PlanResult> fitting;            ///< fastest first: by tokens/s, then by less memory
  int64_t combinations = 0;                   ///< of the space, whose sizes make a grid
  int64_t refused = 0;                        ///< break a rule of scenarios
  std::map<std::string, int64_t> refused_by;  ///< by the key of the first broken rule
  int64_t state_too_large = 0;                ///< training state alone does not fit
  int64_t too_large = 0;       ///< state fits, with activations and buffers it does not
  int64_t slower_by_rule = 0;  ///< left out: recompute or offload where the same fits without
  int64_t beaten = 0;     ///< left out: no other schedule or overlap of the layout can be as good
  int64_t dominated = 0;  ///< left out: something found is as fast with as little memory, even if
                          ///< what they may hide (gathering, all-to-all, the bubble) were free
  int64_t estimated = 0;
  /// Of those that do not fit the one with the lowest peak; its figures have no time where only its
  /// state was computed.
  std::optional<PlanResult> closest;
};

struct PlanMachine {
  int64_t gpus_per_node = 8;
  int64_t memory_bytes = 0;  ///< of a GPU
  /// Nobody trains slower to use less than this.
  int64_t ample_bytes() const { return memory_bytes / 4; }
};

using EstimateStep = std::function<PlanFigures(const Scenario&)>;

/// `estimate` is called for points whose rules hold. First every layout with the first schedule and
/// overlap of the space, without what gathers weights layer by layer; then with that, which is the
/// costly part to estimate; then with the other schedules and overlap. A point of the later passes
/// is left out where something found is as fast, as small and drops as little even if all that the
/// point may hide (gathering, all-to-all, the bubble) took no time. Memory of which less is worth
/// nothing (PlanMachine::ample_bytes) counts as equal.
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
  std::vector<PlanResult> fitting;                       ///< of this layout, found before
};
/// One task; nothing is ranked.
PlanSearch search_layout(const Scenario& scenario, const PlanSpace& space, const PlanTask& task,
                         const PlanMachine& machine, const EstimateStep& estimate);
/// The search by whoever does the tasks, each answered by search_layout.
using RunTasks = std::function<std::vector<PlanSearch>(const std::vector<PlanTask>&)>;
PlanSearch search_plan_by(const Scenario& scenario, const PlanSpace& space,
                          const PlanMachine& machine, const RunTasks& run);

/// How likely the first of two predicted times is the lower one in truth when each is off by an
/// independent normal error (of the logarithm) whose absolute value has the median `median_error`:
/// Phi(ln(b / a) / (sqrt(2) sigma)), sigma = median / 0.6745.
double chance_faster(double a_seconds, double b_seconds, double median_error);

/// GPU hours for that many tokens.
double gpu_hours(double tokens, double tokens_per_second, int64_t gpus);

}  // namespace moetwin
