#pragma once
// A kernel that no op stands for alone (a batched product, a softmax), as a machine can be given
// it: description only.

#include "core/device/op.h"

namespace moetwin {

/// A launch of just this kernel; without `group_rows`. Only with numerics none.
OpCall bare_kernel(const KernelWork& work);

}  // namespace moetwin
