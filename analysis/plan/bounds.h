#pragma once
// How good another way to train a layout can be at best, from one that was estimated.

#include <cstdint>
#include <string>

#include "analysis/plan/result.h"

namespace moetwin {

/// What another way may hide of an estimated step, at best.
struct Hidden {
  bool exchange = false;   ///< the all-to-all of tokens, behind other work
  bool gathering = false;  ///< gathers and reductions; and the optimizer has nothing left to do
  double bubble = 0;       ///< share of the bubble
};

/// Share of 1F1B's bubble that a schedule does without: interleaving all but 1 / V, ZB-H1 all but
/// (F + B - W) / (F + B + W), a third where the three take equally long (Qi et al. 2023). A little
/// more of each, for what else the schedules change.
double hidden_bubble(const std::string& schedule, int64_t virtual_stages);
/// The most that anything of a space hides of its first schedule and overlap.
Hidden most_hidden(const PlanSpace& space);

/// Tokens a second of the step with that hidden.
double promise(const PlanFigures& figures, const Hidden& hidden);
/// The least memory, where `state` bytes stay from step to step: what comes and goes in a step
/// (activations above all) is the same, or more.
double least_bytes(const PlanFigures& figures, int64_t state, const Hidden& hidden);
/// How many times the activations of 1F1B's fullest stage a schedule holds at most, with or without
/// overlap; infinite: as many as there are micro-batches.
double most_of_activations(const std::string& schedule);

}  // namespace moetwin
