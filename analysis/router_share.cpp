#include "analysis/router_share.h"

namespace moetwin {

RouterShare router_share(const OpLists& lists) {
  RouterShare found;
  for (const auto& [place, ops] : lists) {
    if (place.second < 0) continue;  // the host thread
    double logits = 0;               // of a product that may turn out to be a router's
    int gradients = 0;               // products still to come that are
    for (const ListedOp& op : ops) {
      if (op.activity != "compute") continue;
      found.compute += op.seconds;
      if (op.name == "gemm") {
        if (gradients > 0) {
          --gradients;
          found.router += op.seconds;
          logits = 0;
        } else {
          logits = op.seconds;
        }
      } else if (op.name == "router_select" || op.name == "router_scripted") {
        found.router += op.seconds + logits;
        logits = 0;
      } else if (op.name.starts_with("router_") || op.name == "balance_bias_update" ||
                 op.name == "accumulate_counts") {
        found.router += op.seconds;
        if (op.name == "router_backward") gradients = 2;
      }
    }
  }
  return found;
}

}  // namespace moetwin
