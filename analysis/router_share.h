#pragma once
// How much of the computing a router is: its fp32 path can take a tenth of a step unnoticed.

#include "analysis/compare/op_list.h"

namespace moetwin {

struct RouterShare {
  double router = 0, compute = 0;  ///< seconds of all ranks in the timeline's steps
  double share() const { return compute > 0 ? router / compute : 0; }
};

/// Router ops (router_*, balance_bias_update, accumulate_counts) and the products around them: a
/// router's logits are the last product before its selection, the gradients of its weight and its
/// input the first two after router_backward. The wait for other ranks is no computing.
RouterShare router_share(const OpLists& lists);

}  // namespace moetwin
