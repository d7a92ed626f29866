#pragma once
// Which experts every token was sent to, by how much that was decided, and a way to make another
// run decide the same: a cluster that looks at every router_select.

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/device/backend.h"

namespace moetwin::test {

/// One router_select on one rank. T tokens, k choices.
struct RoutingCall {
  int64_t top_k = 0;
  std::vector<int32_t> ids;    ///< [T*k], a token's own in ascending order
  std::vector<float> margins;  ///< [T] k-th minus (k+1)-th score that was selected by
};
/// By rank, in launch order.
using RoutingLog = std::map<int64_t, std::vector<RoutingCall>>;

std::string to_bytes(const RoutingLog& log);
RoutingLog routing_log(const std::string& bytes);

struct RoutingDifference {
  int64_t tokens = 0;      ///< compared
  int64_t undecided = 0;   ///< of these, with a margin up to `tie` in `a`
  int64_t moved_ties = 0;  ///< undecided ones whose experts differ
  int64_t moved = 0;       ///< decided ones whose experts differ
  double widest = 0;       ///< the largest margin of a token that differs
};
RoutingDifference compare(const RoutingLog& a, const RoutingLog& b, double tie);

/// Runs every rank's program on `inner` and keeps in `log` what its first `calls` calls of
/// router_select chose. With `replay`, those choices replace the rank's own: ids, and with them
/// counts and weights (which must be normalised to a sum of 1, softmax or sigmoid).
std::unique_ptr<Cluster> watch_routing(std::unique_ptr<Cluster> inner, RoutingLog& log,
                                       size_t calls, const RoutingLog* replay = nullptr);

}  // namespace moetwin::test
