#include "core/record/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace moetwin {

namespace {

Json::Value number(double value) {
  return std::isfinite(value) ? Json::Value(value) : Json::Value();
}

/// -1 stands for "does not apply".
Json::Value known(double value) { return value < 0 ? Json::Value() : Json::Value(value); }
Json::Value known(int64_t value) {
  return value < 0 ? Json::Value() : Json::Value(Json::Int64(value));
}

template <class Numbers>
Json::Value array(const Numbers& numbers) {
  Json::Value list(Json::arrayValue);
  for (const auto& n : numbers) {
    if constexpr (std::is_floating_point_v<std::decay_t<decltype(n)>>)
      list.append(number(n));
    else
      list.append(Json::Int64(n));
  }
  return list;
}

Json::Value parts_json(const StepParts& parts) {
  Json::Value json(Json::objectValue);
  for (int p = 0; p < kParts; ++p)
    json[part_name(static_cast<Part>(p))] = parts.seconds[static_cast<size_t>(p)];
  return json;
}

Json::Value layer_json(const LayerReport& layer) {
  Json::Value json(Json::objectValue);
  json["layer"] = Json::Int64(layer.layer);
  json["load_cv"] = layer.metrics.load_cv;
  json["imbalance_experts"] = layer.metrics.imbalance_experts;
  json["imbalance_ranks"] = layer.metrics.imbalance_ranks;
  json["entropy"] = layer.metrics.entropy;
  json["dead_share"] = layer.metrics.dead_share;
  json["dropped_share"] = layer.metrics.dropped_share;
  json["mean_probability"] = array(layer.mean_probability);
  json["load_share"] = array(layer.load_share);
  json["churn"] = number(layer.churn);
  json["router_entropy"] = number(layer.router_entropy);
  json["logit_std"] = number(layer.logit_std);
  json["harm"] = number(layer.harm);
  json["aux_loss"] = number(layer.aux);
  json["z_loss"] = number(layer.z);
  json["importance_cv2"] = number(layer.importance);
  json["load_variance"] = number(layer.load_variance);
  return json;
}

Json::Value verdict_json(const Verdict& verdict) {
  Json::Value json(Json::objectValue);
  json["kind"] = verdict.kind;
  json["layer"] = known(verdict.layer);
  json["onset_step"] = known(verdict.onset_step);
  json["end_step"] = known(verdict.end_step);
  json["strength"] = verdict.strength.empty() ? Json::Value() : Json::Value(verdict.strength);
  json["period_steps"] = known(verdict.period_steps);
  json["amplitude"] = known(verdict.amplitude);
  json["confidence"] = verdict.confidence;
  json["evidence"] = verdict.evidence;
  json["advice"] = verdict.advice;
  return json;
}

void add_throughput(const Report& r, Json::Value& json) {
  Json::Value& t = json["throughput"];
  t["tokens_per_second"] = number(r.tokens_per_second);
  t["samples_per_second"] = number(r.samples_per_second);
  t["step_seconds_median"] = number(r.step_seconds_median);
  t["step_seconds_p5"] = number(r.step_seconds_p5);
  t["step_seconds_p95"] = number(r.step_seconds_p95);
  t["mfu"] = number(r.mfu);
  t["hfu"] = number(r.hfu);
  t["steps_measured"] = Json::Int64(r.steps_measured);
  t["warmup_steps_excluded"] = Json::Int64(r.steps_recorded - r.steps_measured);
  t["peak_flop_per_second"] = r.peak_flop_per_second;
  t["peak_source"] = r.peak_source;
  t["device_seconds"] = r.device_seconds;

  json["step_parts_seconds"] = parts_json(r.parts);
  Json::Value& compute = json["compute_parts_seconds"];
  compute["forward"] = r.parts.forward;
  compute["backward"] = r.parts.backward;
  compute["recompute"] = r.parts.recompute;
  compute["optimizer"] = r.parts.optimizer;
  compute["other"] = r.parts.compute_other;
  Json::Value& hidden = json["hidden_seconds"];
  hidden["all_to_all"] = r.parts.all_to_all_hidden;
  hidden["other_communication"] = r.parts.other_communication_hidden;
  json["median_step"] = Json::Int64(r.median_step);
  Json::Value& ranks = json["step_parts_seconds_per_rank"];
  ranks = Json::Value(Json::objectValue);
  for (int p = 0; p < kParts; ++p) {
    std::vector<double> seconds;
    for (const StepParts& parts : r.parts_per_rank)
      seconds.push_back(parts.seconds[static_cast<size_t>(p)]);
    ranks[part_name(static_cast<Part>(p))] = array(seconds);
  }
}

void add_memory_and_traffic(const Report& r, Json::Value& json) {
  Json::Value& memory = json["memory"];
  memory["peak_bytes_per_rank"] = array(r.peak_bytes_per_rank);
  memory["capacity_bytes"] = r.memory_capacity_bytes > 0
                                 ? Json::Value(Json::Int64(r.memory_capacity_bytes))
                                 : Json::Value();
  memory["device_bytes_per_rank"] = array(r.device_bytes_per_rank);
  memory["reserved_bytes"] = Json::Int64(r.reserved_bytes);
  memory["context_bytes"] = Json::Int64(r.context_bytes);
  memory["communicator_bytes"] = Json::Int64(r.communicator_bytes);
  if (r.host_bytes > 0) memory["host_bytes"] = Json::Int64(r.host_bytes);
  memory["fullest_rank"] = Json::Int64(r.fullest_rank);
  for (int c = 0; c < kMemoryClasses; ++c)
    memory["classes"][memory_class_name(static_cast<MemoryClass>(c))] =
        Json::Int64(r.classes_of_fullest[static_cast<size_t>(c)]);
  Json::Value& traffic = json["traffic"];
  for (const char* always : {"all_to_all", "all_reduce"}) {
    traffic[std::string(always) + "_bytes_per_step"] = 0.0;
    traffic[std::string(always) + "_off_node_bytes_per_step"] = 0.0;
  }
  for (const auto& [kind, sent] : r.traffic_per_step) {
    traffic[kind + "_bytes_per_step"] = sent.bytes;
    traffic[kind + "_off_node_bytes_per_step"] = sent.off_node;
  }
  Json::Value& purposes = traffic["bytes_per_step_by_purpose"];
  purposes = Json::Value(Json::objectValue);
  for (const auto& [purpose, sent] : r.traffic_by_purpose) purposes[purpose] = sent.bytes;
  Json::Value& collectives = traffic["collectives"];
  collectives = Json::Value(Json::arrayValue);
  for (const CollectiveLine& line : r.collectives) {
    Json::Value entry(Json::objectValue);
    entry["collective"] = line.kind;
    entry["purpose"] = line.purpose;
    entry["group"] = line.group;
    entry["group_size"] = Json::Int64(line.members);
    entry["algorithm"] = line.algorithm.empty() ? Json::Value() : Json::Value(line.algorithm);
    entry["ranks"] = line.ranks;
    entry["calls_per_step"] = line.calls;
    entry["bytes_per_step"] = line.bytes;
    entry["off_node_bytes_per_step"] = line.off_node;
    entry["seconds_per_step"] = number(line.seconds);
    entry["bus_bandwidth_bytes_per_second"] = number(line.bus_bandwidth());
    collectives.append(entry);
  }
  json["host_syncs_per_step"] = r.host_syncs_per_step;
}

/// With their totals over steps as means of a step.
Json::Value fault_costs_json(const Report& r) {
  const FaultCosts& costs = *r.fault_costs;
  const auto steps = static_cast<double>(std::max<int64_t>(r.steps_recorded, 1));
  const double with = r.device_seconds, tokens = costs.tokens;
  const auto cost = [&](double seconds) {
    Json::Value json(Json::objectValue);
    const double without = with - seconds;
    json["step_seconds_lost"] = seconds / steps;
    json["share_lost"] = without > 0 ? seconds / without : 0;
    json["tokens_per_second_lost"] = without > 0 && with > 0 ? tokens / without - tokens / with : 0;
    return json;
  };
  Json::Value json = cost(with - costs.device_seconds_without);
  json["step_seconds"] = with / steps;
  json["step_seconds_without"] = costs.device_seconds_without / steps;
  json["each"] = Json::Value(Json::arrayValue);
  for (const FaultCosts::Each& each : costs.each) {
    Json::Value one = cost(each.seconds);
    one["fault"] = each.fault;
    json["each"].append(one);
  }
  return json;
}

}  // namespace

std::string verdict_place(const Verdict& v) {
  std::string text;
  const auto add = [&text](const std::string& piece) {
    text += (text.empty() ? "" : ", ") + piece;
  };
  if (v.layer >= 0) add(fmt::format("layer {}", v.layer));
  if (!v.strength.empty()) add(v.strength);
  if (v.onset_step >= 0)
    add(v.end_step >= 0 ? fmt::format("steps {} to {}", v.onset_step, v.end_step)
                        : fmt::format("from step {}", v.onset_step));
  if (v.period_steps > 0) add(fmt::format("period {:.3g} steps", v.period_steps));
  if (v.amplitude >= 0) add(fmt::format("amplitude {:.2f} of the mean load", v.amplitude));
  return text;
}

Json::Value report_json(const Report& r) {
  Json::Value json(Json::objectValue);
  json["schema"] = kReportSchema;
  json["scenario"] = r.scenario;
  json["backend"] = r.backend;
  json["fidelity"] = r.fidelity;
  json["cluster"] = r.cluster;
  json["device"] = r.device_name;
  json["seed"] = Json::Int64(r.seed);
  json["world_size"] = Json::Int64(r.world_size);
  json["gpus_per_node"] = Json::Int64(r.gpus_per_node);
  json["steps_asked"] = Json::Int64(r.steps_asked);
  json["steps_done"] = Json::Int64(r.steps_done);
  json["wall_seconds"] = r.wall_seconds;
  json["loss"]["first"] = number(r.first_loss);
  json["loss"]["last"] = number(r.last_loss);
  json["loss"]["validation_last"] = number(r.validation_last);
  json["loss"]["series_file"] = "steps.csv";
  Json::Value& validation = json["loss"]["validation"];
  validation = Json::Value(Json::arrayValue);
  for (const auto& [step, loss] : r.validation_series) {
    Json::Value point(Json::objectValue);
    point["step"] = Json::Int64(step);
    point["loss"] = number(loss);
    validation.append(point);
  }
  add_throughput(r, json);
  add_memory_and_traffic(r, json);
  json["routing"]["window_steps"] = Json::Int64(r.routing_window_steps);
  json["routing"]["router_share_of_compute"] = number(r.router_share_of_compute);
  Json::Value& layers = json["routing"]["layers"];
  layers = Json::Value(Json::arrayValue);
  for (const LayerReport& layer : r.layers) layers.append(layer_json(layer));
  if (!r.ops.steps.empty()) json["profile"] = op_table_json(r.ops);
  Json::Value& verdicts = json["verdicts"];
  verdicts = Json::Value(Json::arrayValue);
  for (const Verdict& verdict : r.verdicts) verdicts.append(verdict_json(verdict));
  json["notes"] = Json::Value(Json::arrayValue);
  for (const std::string& note : r.notes) json["notes"].append(note);
  json["error"] = r.error.empty() ? Json::Value() : Json::Value(r.error);
  const double hours = static_cast<double>(r.world_size) * r.device_seconds / 3600;
  json["cost"]["gpu_hours"] = hours;
  if (r.price_per_gpu_hour > 0) {
    json["cost"]["price"] = hours * r.price_per_gpu_hour;
    json["cost"]["currency"] = r.currency;
  }
  if (r.fault_costs) json["faults"] = fault_costs_json(r);
  json["environment"] = r.environment.isNull() ? Json::Value(Json::objectValue) : r.environment;
  json["settings"] = r.settings.isNull() ? Json::Value(Json::objectValue) : r.settings;
  return json;
}

}  // namespace moetwin
