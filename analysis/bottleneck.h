#pragma once
// What bounds the step: communication, imbalance, memory, host, pipeline or compute, with the
// advice of seed 000.

#include <json/value.h>

#include <string>
#include <vector>

#include "analysis/result/run.h"

namespace moetwin {

struct Bottleneck {
  std::string kind;  ///< communication | imbalance | memory | host | bubble | data | compute
  double share = 0;  ///< of the step's seconds; memory: of the capacity
  std::string evidence;
  std::vector<std::string> advice;
};

/// The largest first; never empty when the report has step parts.
///   communication  all_to_all + other_communication (exposed) at least 25% of the step
///   imbalance      idle or waiting that uneven ranks explain: the busiest rank's compute less the
///                  mean over ranks, at least 10% of the step; or idle of at least 10% with
///                  imbalance_ranks above 1.3
///   memory         the fullest rank at 90% of the capacity or more, or an out_of_memory verdict
///   host, bubble, data   at least 15% of the step each
///   compute        when none of these holds
std::vector<Bottleneck> find_bottlenecks(const Run& run);

Json::Value bottlenecks_json(const std::vector<Bottleneck>& bottlenecks);

}  // namespace moetwin
