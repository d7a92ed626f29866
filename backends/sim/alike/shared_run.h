#pragma once
// Training in which ranks that are alike share one run of the core's program: it is run once by a
// scribe, step by step as the first rank asks for the next one, and played by every rank. What each
// rank's machine does with the calls (its streams, its collectives, contention, faults) is
// simulated rank by rank as ever: the results are those of running the program on each.

#include <functional>

#include "backends/sim/alike/alike.h"
#include "backends/sim/alike/tape.h"
#include "backends/sim/runtime/simulation.h"
#include "core/train/trainer.h"

namespace moetwin {

/// Sees every segment of every leader's tape, in order; null: nobody does.
using TapeReader = std::function<void(int64_t leader, const TapeSegment& segment)>;

/// `begun` is called on a rank's actor before anything else; null: nothing is. `services` without
/// checkpoints, resume and hooks.
void run_shared(Simulation& simulation, const Scenario& scenario, const Grid& grid,
                const AlikeRanks& alike, const TrainerServices& services,
                const std::function<void()>& begun, const TapeReader& reader);

}  // namespace moetwin
