#pragma once
// One step of the whole job: a row of steps.csv, and what the progress line shows.

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/record/collectives.h"
#include "core/record/probe.h"
#include "core/record/routing_metrics.h"
#include "core/record/step_parts.h"

namespace moetwin {

/// One MoE layer in one step, over all ranks.
struct LayerRow {
  int64_t layer = 0;
  int64_t tokens = 0;
  std::vector<int64_t> counts;      ///< [E] before dropping
  std::vector<int64_t> kept;        ///< [E] after dropping
  std::vector<double> probability;  ///< [E] mean per token; empty: unknown
  RoutingMetrics metrics;
  double aux = 0, z = 0, importance = 0, load_variance = 0;  ///< raw, mean over tokens
  std::optional<ProbeRow> probe;                             ///< where the step was probed
};

/// Bytes that all ranks sent to other ranks.
struct SentBytes {
  int64_t bytes = 0;
  int64_t off_node = 0;  ///< of these, to ranks on other nodes
};

struct StepRow {
  int64_t step = 0;
  double loss = 0;  ///< cross-entropy in nats per valid token; NaN: unknown
  double aux = 0, z = 0, importance = 0, load_variance = 0;  ///< raw, mean over MoE layers
  double grad_norm = 0, learning_rate = 0, loss_scale = 1;
  bool skipped = false;
  double start = 0, end = 0;  ///< device clock: from the end of the step before to the last rank's
  int64_t tokens = 0;         ///< of the global batch
  StepParts parts;            ///< mean over ranks
  RoutingMetrics routing;     ///< load_cv, entropy, dead and dropped: mean over MoE layers;
                              ///< imbalances: of the worst layer
  double churn = std::numeric_limits<double>::quiet_NaN();  ///< mean over MoE layers; NaN: unknown
  std::vector<LayerRow> layers;
  std::map<std::string, SentBytes> traffic;     ///< by kind of collective
  std::map<std::string, SentBytes> by_purpose;  ///< the same bytes by what they were for
  CollectiveTable collectives;                  ///< the same by group and algorithm
  int64_t host_syncs = 0;                       ///< largest over ranks
  int64_t peak_memory_bytes = 0;                ///< largest over ranks

  double seconds() const { return end - start; }
  double tokens_per_second() const { return static_cast<double>(tokens) / seconds(); }
};

/// The header of steps.csv and the line of one step, each with its newline. Numbers are the
/// shortest that read back to the same value; what is unknown is an empty field.
std::string steps_csv_header();
std::string steps_csv_line(const StepRow& row);

/// The shortest decimal that reads back to the same double.
std::string shortest(double value);

}  // namespace moetwin
