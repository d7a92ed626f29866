#pragma once
// Gradients against central differences in double.

#include "tests/conformance/machine.h"

namespace moetwin::conformance {

/// Compares `analytic` with the central difference of sum(weights * forward(x)) in every element of
/// x, or in every `stride`-th. `forward` runs in fp64.
void expect_gradient(const Values& x, const std::function<Values(const Values&)>& forward,
                     const Values& weights, const Values& analytic, const char* what,
                     size_t stride = 1);

/// Whether the machine has fp64, which central differences need.
bool has_doubles(const Machine& machine);

}  // namespace moetwin::conformance
