#pragma once
// One step of the whole job: a row of steps.csv, and what the progress line shows.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/record/routing_metrics.h"
#include "core/record/step_parts.h"

namespace moetwin {

/// One MoE layer in one step, over all ranks.
struct LayerRow {
  int64_t layer = 0;
  int64_t tokens = 0;
  std::vector<int64_t> counts;      ///< [E] before dropping
  int64_t kept = 0;                 ///< assignments after dropping
  std::vector<double> probability;  ///< [E] mean per token; empty: unknown
  RoutingMetrics metrics;
  double aux = 0, z = 0, importance = 0, load_variance = 0;  ///< raw, mean over tokens
  double churn = 0;                                          ///< NaN: unknown
};

struct StepRow {
  int64_t step = 0;
  double loss = 0;  ///< cross-entropy in nats per valid token; NaN: unknown
  double aux = 0, z = 0, importance = 0, load_variance = 0;  ///< raw, mean over MoE layers
  double grad_norm = 0, learning_rate = 0, loss_scale = 1;
  bool skipped = false;
  double start = 0, end = 0;  ///< device clock: from the end of the step before to the last rank's
  double seconds() const { return end - start; }
  int64_t tokens = 0;  ///< of the global batch
  double tokens_per_second() const { return static_cast<double>(tokens) / seconds(); }
  StepParts parts;         ///< mean over ranks
  RoutingMetrics routing;  ///< load_cv, entropy, dead and dropped: mean over MoE layers;
                           ///< imbalances: of the worst layer
  std::vector<LayerRow> layers;
  /// Bytes sent by all ranks, by kind of collective, and of these to other nodes.
  std::map<std::string, int64_t> traffic, traffic_off_node;
  int64_t host_syncs = 0;         ///< largest over ranks
  int64_t peak_memory_bytes = 0;  ///< largest over ranks
};

/// The header of steps.csv and the line of one step, each with its newline. Numbers are the
/// shortest that read back to the same value; what is unknown is an empty field.
std::string steps_csv_header();
std::string steps_csv_line(const StepRow& row);

}  // namespace moetwin
