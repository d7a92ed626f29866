#include "core/record/recorder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/base/error.h"
#include "core/record/json_text.h"
#include "core/record/merge_layers.h"
#include "core/record/output_file.h"
#include "core/record/profile_schedule.h"
#include "core/record/routing_csv.h"
#include "core/record/timeline.h"

namespace moetwin {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// Kinds as the report names them.
std::string traffic_kind(const std::string& kind) {
  if (kind == "all_to_all_v") return "all_to_all";
  if (kind == "send" || kind == "recv") return "point_to_point";
  return kind;
}

double mean_churn(const std::vector<LayerRow>& layers) {
  double sum = 0;
  int64_t probed = 0;
  for (const LayerRow& layer : layers)
    if (layer.probe) sum += layer.probe->churn, ++probed;
  return probed > 0 ? sum / static_cast<double>(probed) : kUnknown;
}

/// Sums by rank in ascending order over a count that may be zero.
double mean_loss(double nats, int64_t tokens) {
  return tokens > 0 ? nats / static_cast<double>(tokens) : kUnknown;
}

}  // namespace

/// What is kept of a rank's step until the others are in.
struct Recorder::RankPart {
  bool in = false;
  RankStep step;  ///< without its profile
  StepParts parts;
  std::string timeline;
  RankOps ops;
};

struct Recorder::PendingStep {
  int64_t arrived = 0;
  int64_t routing_rows = 0;  ///< of all ranks
  std::vector<RankPart> ranks;
  std::map<std::string, SentBytes> traffic, by_purpose;
  CollectiveTable collectives;
};

struct Recorder::Validation {
  std::vector<double> ce_sum;
  std::vector<int64_t> tokens;
  int64_t arrived = 0;
  double loss = kUnknown;
};

struct Recorder::Files {
  explicit Files(const std::string& directory)
      : directory(directory),
        steps(directory + "/steps.csv"),
        routing(directory + "/routing.csv"),
        timeline(directory + "/timeline.json") {
    steps.write(steps_csv_header());
    routing.write(routing_csv_header());
  }
  void add_layer(int64_t step, const LayerRow& layer) {
    routing.write(routing_csv_totals(step, layer));
    if (!layer.probe) return;
    if (!probe) {
      probe = std::make_unique<OutputFile>(directory + "/probe.csv");
      probe->write(probe_csv_header(static_cast<int64_t>(layer.probe->share.size()),
                                    !layer.probe->bias.empty()));
    }
    probe->write(probe_csv_line(step, layer.layer, *layer.probe));
  }
  std::string directory;
  OutputFile steps, routing, timeline;
  std::unique_ptr<OutputFile> probe;  ///< made with the first probe
  std::vector<std::string> events;
  int32_t streams = 0;
};

Recorder::Recorder(const Scenario& scenario, const Grid& grid, RunInfo info)
    : scenario_(scenario),
      grid_(grid),
      info_(std::move(info)),
      last_end_(-std::numeric_limits<double>::infinity()),
      builder_(scenario, grid, info_.device.memory_bytes) {
  if (info_.directory.empty()) return;
  std::error_code ignored;
  made_directory_ = !std::filesystem::exists(info_.directory, ignored);
  make_directory(info_.directory);
  files_ = std::make_unique<Files>(info_.directory);
}

Recorder::~Recorder() {
  if (!files_) return;
  files_.reset();
  std::error_code not_empty;
  if (made_directory_) std::filesystem::remove(info_.directory, not_empty);
}

bool Recorder::wants_detail(int64_t step) const { return traced(scenario_, step); }

void Recorder::add(RankStep step) {
  RankPart part;
  part.in = true;
  // Outside of the lock: most of the work. The profile is not kept: its names may belong to a
  // machine that ends before the other ranks are in.
  part.parts = step_parts(step.profile, step.start, step.end, grid_.pp() > 1);
  int32_t streams = 0;
  if (files_ && in_timeline(scenario_, step.step) && step.rank < kTimelineRanks) {
    part.timeline = timeline_events(step.rank, step.step, step.profile);
    for (const Interval& interval : step.profile.intervals)
      streams = std::max(streams, interval.stream + 1);
  }
  if (profile_action(scenario_.profile, step.step) == ProfileAction::record)
    part.ops = rank_ops(step.profile);
  step.profile.intervals = {};

  const std::lock_guard lock(mutex_);
  if (files_) files_->streams = std::max(files_->streams, streams);
  const int64_t number = step.step;
  std::unique_ptr<PendingStep>& pending = pending_[number];
  if (!pending) {
    pending = std::make_unique<PendingStep>();
    pending->ranks.resize(static_cast<size_t>(grid_.world()));
  }
  RankPart& place = pending->ranks.at(static_cast<size_t>(step.rank));
  require(!place.in, "a rank adds a step once");
  for (const Traffic& traffic : step.profile.traffic) {
    const std::string kind = traffic_kind(traffic.kind);
    for (SentBytes* sent : {&pending->traffic[kind], &pending->by_purpose[traffic.purpose]}) {
      sent->bytes += traffic.bytes;
      sent->off_node += traffic.bytes_off_node;
    }
    add_collective(pending->collectives, kind, traffic);
  }
  step.profile.traffic = {};
  for (const LayerStep& layer : step.layers)
    pending->routing_rows += static_cast<int64_t>(layer.counts.size());
  part.step = std::move(step);
  place = std::move(part);
  if (++pending->arrived < grid_.world()) return;
  const StepRow row = complete(*pending);
  if (files_) write(*pending, row);
  pending_.erase(number);
  if (info_.on_step) info_.on_step(row);
}

StepRow Recorder::complete(PendingStep& pending) {
  StepRow row;
  const RankStep& first = pending.ranks.front().step;
  row.step = first.step;
  row.grad_norm = first.grad_norm;
  row.learning_rate = first.learning_rate;
  row.loss_scale = first.loss_scale;
  row.skipped = first.skipped;
  row.tokens = scenario_.training_config.global_batch_size * scenario_.model_config.sequence_length;
  double nats = 0, earliest = first.start;
  int64_t valid = 0;
  row.end = first.end;
  LayerMerge layers(grid_);
  std::vector<MemoryUse> memory;
  for (const RankPart& part : pending.ranks) {
    nats += part.step.ce_sum;
    valid += part.step.valid_tokens;
    earliest = std::min(earliest, part.step.start);
    row.end = std::max(row.end, part.step.end);
    layers.add(part.step);
    row.host_syncs = std::max(row.host_syncs, part.step.host_syncs);
    row.peak_memory_bytes = std::max(row.peak_memory_bytes, part.step.memory.peak);
    memory.push_back(part.step.memory);
  }
  row.loss = mean_loss(nats, valid);
  row.start = std::max(earliest, last_end_);
  last_end_ = row.end;
  row.traffic = std::move(pending.traffic);
  row.collectives = std::move(pending.collectives);
  row.by_purpose = std::move(pending.by_purpose);

  std::vector<StepParts> parts;
  for (RankPart& part : pending.ranks) {
    part.parts.fit(row.seconds());
    row.parts += part.parts;
    parts.push_back(part.parts);
  }
  row.parts = row.parts / static_cast<double>(grid_.world());

  row.layers = layers.rows();
  if (!row.layers.empty()) {
    const auto count = static_cast<double>(row.layers.size());
    RoutingMetrics sum{0, 0, 0, 0, 0, 0};
    double experts = 1, ranks = 1;
    for (const LayerRow& layer : row.layers) {
      sum += layer.metrics;
      experts = std::max(experts, layer.metrics.imbalance_experts);
      ranks = std::max(ranks, layer.metrics.imbalance_ranks);
      row.aux += layer.aux / count, row.z += layer.z / count;
      row.importance += layer.importance / count;
      row.load_variance += layer.load_variance / count;
    }
    row.routing = sum / count;
    row.routing.imbalance_experts = experts;
    row.routing.imbalance_ranks = ranks;
    row.churn = mean_churn(row.layers);
  }
  builder_.add(row, std::move(parts), memory);
  if (profile_action(scenario_.profile, row.step) == ProfileAction::record) {
    std::vector<RankOps> ops;
    for (RankPart& part : pending.ranks) ops.push_back(std::move(part.ops));
    ops_.add_step(row.step, ops);
  }
  return row;
}

void Recorder::write(const PendingStep& pending, const StepRow& row) {
  files_->steps.write(steps_csv_line(row));
  for (const LayerRow& layer : row.layers) files_->add_layer(row.step, layer);
  const RoutingVolume volume{scenario_.output.routing_ranks};
  for (const RankPart& part : pending.ranks) {
    if (!part.timeline.empty()) files_->events.push_back(part.timeline);
    if (!volume.rank_rows(row.step, part.step.rank, pending.routing_rows)) continue;
    for (const LayerStep& layer : part.step.layers)
      files_->routing.write(routing_csv_rank(row.step, part.step.rank, layer));
  }
}

void Recorder::add_validation(int64_t rank, int64_t step, double ce_sum, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  Validation& validation = validations_[step];
  validation.ce_sum.resize(static_cast<size_t>(grid_.world()));
  validation.tokens.resize(static_cast<size_t>(grid_.world()));
  validation.ce_sum.at(static_cast<size_t>(rank)) = ce_sum;
  validation.tokens.at(static_cast<size_t>(rank)) = tokens;
  if (++validation.arrived < grid_.world()) return;
  double nats = 0;
  int64_t count = 0;
  for (size_t r = 0; r < validation.ce_sum.size(); ++r)
    nats += validation.ce_sum[r], count += validation.tokens[r];
  validation.loss = mean_loss(nats, count);
  validation.ce_sum = {}, validation.tokens = {};
  builder_.set_validation(validation.loss);
}

double Recorder::validation_loss(int64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto found = validations_.find(step);
  return found == validations_.end() ? kUnknown : found->second.loss;
}

std::pair<double, int64_t> Recorder::best_validation(int64_t up_to_step) const {
  const std::lock_guard lock(mutex_);
  std::pair<double, int64_t> best{kUnknown, 0};
  for (const auto& [step, validation] : validations_)
    if (step <= up_to_step && std::isfinite(validation.loss) &&
        (best.second == 0 || validation.loss < best.first))
      best = {validation.loss, step};
  return best;
}

int64_t Recorder::steps_done() const {
  const std::lock_guard lock(mutex_);
  return builder_.last_step();
}

Report Recorder::finish(const RunEnd& end) {
  const std::lock_guard lock(mutex_);
  Report report = builder_.build(info_.device.peak_flop_per_second, info_.hardware_flop_per_step);
  report.backend = info_.backend;
  report.cluster = info_.cluster;
  report.device_name = info_.device.name;
  report.gpus_per_node = info_.device.gpus_per_node;
  report.peak_source = info_.device.peak_source;
  report.settings = info_.settings;
  report.notes = info_.notes;
  report.wall_seconds = end.wall_seconds;
  report.environment = end.environment;
  report.error = end.error;
  report.ops = ops_.build();
  for (const auto& [step, validation] : validations_)
    if (std::isfinite(validation.loss)) report.validation_series.push_back({step, validation.loss});
  if (!files_) return report;
  files_->timeline.write(
      timeline_file(std::min(grid_.world(), kTimelineRanks), files_->streams, files_->events));
  files_->steps.commit();
  files_->routing.commit();
  files_->timeline.commit();
  if (!report.ops.steps.empty()) {
    OutputFile table(info_.directory + "/profile.csv");
    table.write(op_table_csv(report.ops));
    table.commit();
  }
  if (files_->probe)
    files_->probe->commit();
  else  // one of an earlier run in this directory is not this run's
    std::filesystem::remove(info_.directory + "/probe.csv");
  if (end.judge) end.judge(report);
  OutputFile json(info_.directory + "/report.json");
  json.write(json_text(report_json(report)));
  json.commit();
  files_.reset();
  return report;
}

}  // namespace moetwin
