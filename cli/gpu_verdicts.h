#pragma once
// What the state of the GPUs at the end of a run says.

#include <vector>

#include "backends/cuda/cluster.h"
#include "core/record/report.h"

namespace moetwin {

/// `gpu_slowed` where a driver holds a GPU back (heat, power limit), `gpu_hot` where one is much
/// warmer than the others: seed 000's symptom of uneven experts. `imbalance_ranks`: the worst MoE
/// layer's load of a rank over the mean; 0: no MoE layers.
std::vector<Verdict> gpu_verdicts(const std::vector<RankGpu>& gpus, double imbalance_ranks);

}  // namespace moetwin
