#pragma once
// report.json and what the summary shows: one run in numbers (schema moetwin-report/1).

#include <json/value.h>

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device/allocator.h"
#include "core/record/collectives.h"
#include "core/record/op_table.h"
#include "core/record/step_row.h"
#include "core/topology/grid.h"

namespace moetwin {

inline constexpr const char* kReportSchema = "moetwin-report/1";

/// Something a user should act on.
struct Verdict {
  std::string kind;  ///< "out_of_memory", ...
  int64_t layer = -1;
  int64_t onset_step = -1;  ///< -1: not of one step; so for the others
  int64_t end_step = -1;    ///< last step of it; -1: it still held at the end
  double period_steps = -1, amplitude = -1, confidence = 1;
  std::string strength;  ///< "strong" | "weak"; empty: has none
  std::string evidence, advice;
};

/// One MoE layer over the last `routing_window_steps` steps: means over steps.
struct LayerReport {
  int64_t layer = 0;
  RoutingMetrics metrics;
  double aux = 0, z = 0, importance = 0, load_variance = 0;
  std::vector<double> mean_probability;  ///< [E]; empty: unknown (no learned router)
  std::vector<double> load_share;        ///< [E] n_i / sum n
  /// Means over the probes of the window (ProbeRow); NaN: unknown.
  double churn = 0, router_entropy = 0, logit_std = 0, harm = 0;
};

/// Peaks of the ranks of one expert-parallel group.
struct EpGroupMemory {
  Group group;
  int64_t lowest = 0, highest = 0;
};

/// What the faults of the modelled machine cost: all steps against the same run without them.
struct FaultCosts {
  struct Each {
    std::string fault;
    double seconds = 0;  ///< of all steps, less when this one is not there and the others are
  };
  double device_seconds_without = 0;  ///< all steps, without any
  double tokens = 0;                  ///< of all steps
  std::vector<Each> each;
};

struct Report {
  std::string scenario, backend, fidelity, cluster, device_name, peak_source, dtype;
  int64_t seed = 0, world_size = 0, gpus_per_node = 1;
  int64_t steps_asked = 0;
  int64_t steps_done = 0;      ///< number of the last step that all ranks completed
  int64_t steps_recorded = 0;  ///< by this run; fewer than steps_done after a resume
  int64_t dense_data_parallel = 1, expert_data_parallel = 1, expert_parallel = 1;
  int64_t context_parallel = 1;
  int64_t tensor_parallel = 1, pipeline_parallel = 1, num_experts = 0, local_experts = 0;
  int64_t steps_measured = 0;  ///< behind throughput, parts and traffic: without warm-up
  double wall_seconds = 0;
  double device_seconds = 0;                                  ///< all steps, on the machine's clock
  double first_loss = 0, last_loss = 0, validation_last = 0;  ///< NaN: unknown
  std::vector<std::pair<int64_t, double>> validation_series;  ///< step, loss
  double tokens_per_second = 0, samples_per_second = 0, step_seconds_median = 0;
  double step_seconds_p5 = 0, step_seconds_p95 = 0;  ///< nearest rank
  double mfu = 0, hfu = 0;                           ///< NaN: unknown
  double peak_flop_per_second = 0;
  int64_t median_step = 0;                ///< whose parts are shown
  StepParts parts;                        ///< of that step, mean over ranks
  std::vector<StepParts> parts_per_rank;  ///< of that step
  std::vector<int64_t> peak_bytes_per_rank;
  std::vector<int64_t> device_bytes_per_rank;  ///< blocks, context and communicators, at the most
  int64_t reserved_bytes = 0, context_bytes = 0, communicator_bytes = 0;  ///< of the fullest rank
  int64_t host_bytes = 0;             ///< largest of a rank: state offloaded to host memory
  int64_t memory_capacity_bytes = 0;  ///< of a rank; 0: unknown
  int64_t fullest_rank = 0;
  std::array<int64_t, kMemoryClasses> classes_of_fullest{};  ///< at its peak
  std::vector<EpGroupMemory> ep_groups;
  struct Sent {
    double bytes = 0, off_node = 0;
  };
  std::map<std::string, Sent> traffic_per_step, traffic_by_purpose;  ///< all ranks together
  std::vector<CollectiveLine> collectives;
  double host_syncs_per_step = 0;
  double aux_loss_factor = 0, z_loss_factor = 0, importance_loss_factor = 0;
  int64_t routing_window_steps = 0;
  /// Of the computing in the timeline's steps; NaN: unknown.
  double router_share_of_compute = std::numeric_limits<double>::quiet_NaN();
  std::vector<LayerReport> layers;
  std::optional<FaultCosts> fault_costs;
  OpTable ops;  ///< of the profile's recorded steps
  std::vector<Verdict> verdicts;
  std::vector<std::string> notes;
  std::string error;  ///< what ended the run early; empty: nothing did
  double price_per_gpu_hour = 0;
  std::string currency;
  Json::Value environment, settings;
};

/// "layer 1, strong, from step 1004, period 6 steps, amplitude 0.64 of the mean load"; what is
/// known of it.
std::string verdict_place(const Verdict& verdict);

Json::Value report_json(const Report& report);

}  // namespace moetwin
