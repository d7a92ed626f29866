#pragma once
// What "trains exactly what one rank trains" means (semantics 2), in one place for every matrix.

#include "tests/support/train_run.h"

namespace moetwin::test {

/// Gradients of equal weights, `steps` steps, counts of routing and norms agree in fp64 to 1e-9,
/// and ranks that keep one parameter end with the same bits of it.
void check_same_training(const TrainResult& result, const TrainResult& one_rank, size_t steps);

}  // namespace moetwin::test
