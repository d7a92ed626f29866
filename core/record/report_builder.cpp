#include "core/record/report_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/units.h"
#include "core/scenario/model_size.h"

namespace moetwin {

namespace {

/// Parts by rank are kept for as many steps as fit into some 60 MB.
constexpr int64_t kKeptParts = 500000;

constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

/// What must fit: pieces live in blocks, so the blocks count where they are known.
int64_t needed(const MemoryUse& use) {
  return std::max(use.peak, use.peak_reserved) + use.communicators;
}

std::map<std::string, Report::Sent> per_step(const std::map<std::string, SentBytes>& sums,
                                             int64_t steps) {
  std::map<std::string, Report::Sent> means;
  const auto n = static_cast<double>(steps);
  for (const auto& [name, sent] : sums)
    means[name] = {static_cast<double>(sent.bytes) / n, static_cast<double>(sent.off_node) / n};
  return means;
}

void add_sent(std::map<std::string, SentBytes>& sums,
              const std::map<std::string, SentBytes>& step) {
  for (const auto& [name, sent] : step) {
    sums[name].bytes += sent.bytes;
    sums[name].off_node += sent.off_node;
  }
}

/// Over the steps that were probed and know the figure.
double probe_mean(const std::deque<std::vector<LayerRow>>& window, size_t layer,
                  double ProbeRow::*figure) {
  double sum = 0;
  int64_t known = 0;
  for (const std::vector<LayerRow>& rows : window) {
    const std::optional<ProbeRow>& probe = rows[layer].probe;
    if (!probe || !std::isfinite((*probe).*figure)) continue;
    sum += (*probe).*figure;
    ++known;
  }
  return known > 0 ? sum / static_cast<double>(known) : kNotKnown;
}

}  // namespace

ReportBuilder::ReportBuilder(const Scenario& scenario, const Grid& grid,
                             int64_t memory_capacity_bytes)
    : scenario_(scenario),
      grid_(grid),
      capacity_(memory_capacity_bytes),
      first_loss_(kNotKnown),
      last_loss_(kNotKnown),
      validation_last_(kNotKnown),
      peaks_(static_cast<size_t>(grid.world())),
      exceeded_step_(static_cast<size_t>(grid.world())) {}

void ReportBuilder::add(const StepRow& row, std::vector<StepParts> parts,
                        const std::vector<MemoryUse>& memory) {
  if (steps_ == 0) first_loss_ = row.loss;
  last_loss_ = row.loss;
  device_seconds_ += row.seconds();
  Sums& sums = steps_ < scenario_.training_config.warmup_steps_excluded ? warm_ : steady_;
  ++steps_;
  last_step_ = row.step;
  ++sums.steps;
  sums.host_syncs += row.host_syncs;
  sums.tokens += static_cast<double>(row.tokens);
  sums.seconds += row.seconds();
  add_sent(sums.traffic, row.traffic);
  add_sent(sums.by_purpose, row.by_purpose);
  add_collectives(sums.collectives, row.collectives);
  sums.kept.push_back({row.step, row.seconds(), row.parts, std::move(parts)});
  const int64_t most = std::max<int64_t>(1, kKeptParts / grid_.world());
  if (static_cast<int64_t>(sums.kept.size()) > most) sums.kept.pop_front();
  add_memory(row, memory);
  window_.push_back(row.layers);
  if (static_cast<int64_t>(window_.size()) > kRoutingWindow) window_.pop_front();
}

void ReportBuilder::add_memory(const StepRow& row, const std::vector<MemoryUse>& memory) {
  for (size_t r = 0; r < memory.size(); ++r) {
    if (memory[r].peak > peaks_[r].peak || steps_ == 1) {
      const int64_t reserved = std::max(peaks_[r].peak_reserved, memory[r].peak_reserved);
      peaks_[r] = memory[r];
      peaks_[r].peak_reserved = reserved;
    }
    peaks_[r].peak_reserved = std::max(peaks_[r].peak_reserved, memory[r].peak_reserved);
    if (capacity_ > 0 && exceeded_step_[r] == 0 && needed(memory[r]) > capacity_)
      exceeded_step_[r] = row.step;
  }
}

void ReportBuilder::build_throughput(Report& report, double peak, double hardware_flop) const {
  const Sums& sums = steady_.steps > 0 ? steady_ : warm_;
  report.steps_measured = sums.steps;
  report.mfu = report.hfu = kNotKnown;
  report.tokens_per_second = report.samples_per_second = report.step_seconds_median = kNotKnown;
  report.step_seconds_p5 = report.step_seconds_p95 = kNotKnown;
  if (sums.steps == 0) return;
  const auto steps = static_cast<double>(sums.steps);
  report.tokens_per_second = sums.tokens / sums.seconds;
  report.samples_per_second =
      steps * static_cast<double>(scenario_.training_config.global_batch_size) / sums.seconds;
  const double model_flop = training_flop_per_step(scenario_);
  if (hardware_flop <= 0)
    hardware_flop =
        model_flop * (1 + recompute_flop_per_token(scenario_) / training_flop_per_token(scenario_));
  const double could = peak * static_cast<double>(grid_.world()) * sums.seconds;
  if (could > 0) {
    report.mfu = model_flop * steps / could;
    report.hfu = hardware_flop * steps / could;
  }
  report.traffic_per_step = per_step(sums.traffic, sums.steps);
  report.traffic_by_purpose = per_step(sums.by_purpose, sums.steps);
  report.collectives = collective_lines(sums.collectives, sums.steps);
  report.host_syncs_per_step = static_cast<double>(sums.host_syncs) / steps;

  // The lower median is a step that was; equal durations: the earlier one.
  std::vector<const Measured*> order;
  for (const Measured& measured : sums.kept) order.push_back(&measured);
  std::stable_sort(order.begin(), order.end(),
                   [](const Measured* a, const Measured* b) { return a->seconds < b->seconds; });
  const Measured& median = *order[(order.size() - 1) / 2];
  report.step_seconds_median = median.seconds;
  report.step_seconds_p5 = order[(order.size() - 1) * 5 / 100]->seconds;
  report.step_seconds_p95 = order[(order.size() - 1) * 95 / 100]->seconds;
  report.median_step = median.step;
  report.parts = median.parts;
  report.parts_per_rank = median.by_rank;
}

void ReportBuilder::build_memory(Report& report) const {
  report.memory_capacity_bytes = capacity_;
  for (size_t r = 0; r < peaks_.size(); ++r) {
    report.peak_bytes_per_rank.push_back(peaks_[r].peak);
    report.device_bytes_per_rank.push_back(needed(peaks_[r]) + peaks_[r].context);
    report.host_bytes = std::max(report.host_bytes, peaks_[r].host);
    if (peaks_[r].peak > peaks_[static_cast<size_t>(report.fullest_rank)].peak)
      report.fullest_rank = static_cast<int64_t>(r);
  }
  const auto fullest = static_cast<size_t>(report.fullest_rank);
  report.classes_of_fullest = peaks_[fullest].bytes_at_peak;
  report.reserved_bytes = peaks_[fullest].peak_reserved;
  report.context_bytes = peaks_[fullest].context;
  report.communicator_bytes = peaks_[fullest].communicators;
  for (const Group& group : grid_.groups(GroupKind::ep)) {
    EpGroupMemory memory{group, peaks_[static_cast<size_t>(group.member(0))].peak, 0};
    for (int64_t i = 0; i < group.size(); ++i) {
      const int64_t peak = peaks_[static_cast<size_t>(group.member(i))].peak;
      memory.lowest = std::min(memory.lowest, peak);
      memory.highest = std::max(memory.highest, peak);
    }
    report.ep_groups.push_back(memory);
  }
  const auto over = std::count_if(exceeded_step_.begin(), exceeded_step_.end(),
                                  [](int64_t step) { return step > 0; });
  if (over == 0) return;
  size_t worst = 0;
  for (size_t r = 0; r < peaks_.size(); ++r)
    if (needed(peaks_[r]) > needed(peaks_[worst])) worst = r;
  const auto& classes = peaks_[worst].bytes_at_peak;
  const auto largest =
      static_cast<MemoryClass>(std::max_element(classes.begin(), classes.end()) - classes.begin());
  Verdict verdict;
  verdict.kind = "out_of_memory";
  verdict.onset_step = exceeded_step_[worst];
  verdict.evidence = fmt::format(
      "{} of {} ranks exceed the memory of a GPU; rank {} needs {} of {}, {} over, of which {} are "
      "{}",
      over, peaks_.size(), worst, format_bytes(static_cast<double>(needed(peaks_[worst]))),
      format_bytes(static_cast<double>(capacity_)),
      format_bytes(static_cast<double>(needed(peaks_[worst]) - capacity_)),
      format_bytes(static_cast<double>(classes[static_cast<size_t>(largest)])),
      memory_class_name(largest));
  verdict.advice =
      "raise expert_parallel_size (experts are spread over more GPUs), set zero_stage 1 to 3 "
      "(optimizer state, gradients, parameters are sharded), training_config.recompute, or lower "
      "expert_hidden_size or micro_batch_size";
  report.verdicts.push_back(verdict);
}

void ReportBuilder::build_routing(Report& report) const {
  report.routing_window_steps = static_cast<int64_t>(window_.size());
  if (window_.empty()) return;
  const auto steps = static_cast<double>(window_.size());
  for (size_t l = 0; l < window_.back().size(); ++l) {
    LayerReport layer;
    layer.layer = window_.back()[l].layer;
    layer.metrics = {0, 0, 0, 0, 0, 0};
    std::vector<double> loads(window_.back()[l].counts.size());
    bool probabilities = true;
    for (const std::vector<LayerRow>& rows : window_) {
      const LayerRow& row = rows[l];
      layer.metrics += row.metrics;
      layer.aux += row.aux / steps, layer.z += row.z / steps;
      layer.importance += row.importance / steps;
      layer.load_variance += row.load_variance / steps;
      for (size_t e = 0; e < loads.size(); ++e) loads[e] += static_cast<double>(row.counts[e]);
      probabilities = probabilities && row.probability.size() == loads.size();
    }
    layer.metrics = layer.metrics / steps;
    layer.churn = probe_mean(window_, l, &ProbeRow::churn);
    layer.router_entropy = probe_mean(window_, l, &ProbeRow::router_entropy);
    layer.logit_std = probe_mean(window_, l, &ProbeRow::logit_std);
    layer.harm = probe_mean(window_, l, &ProbeRow::harm);
    if (probabilities) {
      layer.mean_probability.resize(loads.size());
      for (const std::vector<LayerRow>& rows : window_)
        for (size_t e = 0; e < loads.size(); ++e)
          layer.mean_probability[e] += rows[l].probability[e] / steps;
    }
    const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
    for (double& load : loads) load = sum > 0 ? load / sum : 0;
    layer.load_share = loads;
    report.layers.push_back(std::move(layer));
  }
}

Report ReportBuilder::build(double peak_flop_per_second, double hardware_flop_per_step) const {
  Report report;
  report.scenario = scenario_.name;
  report.fidelity = scenario_.cluster.fidelity;
  report.dtype = scenario_.training_config.dtype;
  report.seed = scenario_.training_config.seed;
  report.world_size = grid_.world();
  report.steps_asked = scenario_.training_config.steps;
  report.steps_done = last_step_;
  report.steps_recorded = steps_;
  report.dense_data_parallel = grid_.batch_ranks(), report.context_parallel = grid_.cp(),
  report.expert_data_parallel = grid_.edp();
  report.expert_parallel = grid_.ep(), report.tensor_parallel = grid_.tp();
  report.pipeline_parallel = grid_.pp(), report.local_experts = grid_.local_experts();
  const MoeLayerConfig& moe = scenario_.model_config.moe_layer_config;
  report.num_experts = moe.num_experts;
  report.aux_loss_factor = moe.aux_loss_factor;
  report.z_loss_factor = moe.z_loss_factor;
  report.importance_loss_factor = moe.importance_loss_factor;
  report.device_seconds = device_seconds_;
  report.first_loss = first_loss_, report.last_loss = last_loss_;
  report.validation_last = validation_last_;
  report.peak_flop_per_second = peak_flop_per_second;
  report.price_per_gpu_hour = scenario_.cluster.price_per_gpu_hour;
  report.currency = scenario_.cluster.currency;
  build_throughput(report, peak_flop_per_second, hardware_flop_per_step);
  build_memory(report);
  build_routing(report);
  return report;
}

}  // namespace moetwin
