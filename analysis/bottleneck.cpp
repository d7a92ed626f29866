#include "analysis/bottleneck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/units.h"

namespace moetwin {

namespace {

struct Facts {
  const Run& run;
  double step = 0;  ///< seconds of the step whose parts these are

  double part(const char* name) const {
    const double seconds = report_number(run.report, fmt::format("step_parts_seconds.{}", name));
    return std::isnan(seconds) ? 0 : seconds;
  }
  double number(const char* path) const { return report_number(run.report, path); }
  std::string of_step(double seconds) const {
    return fmt::format("{} ({:.0f}%)", format_seconds(seconds), 100 * seconds / step);
  }
};

void communication(const Facts& f, std::vector<Bottleneck>& found) {
  const double all_to_all = f.part("all_to_all"), other = f.part("other_communication");
  const double share = (all_to_all + other) / f.step;
  if (share < 0.25) return;
  Bottleneck b;
  b.kind = "communication";
  b.share = share;
  b.evidence = fmt::format("of a step of {} all-to-all takes {} and other collectives {}",
                           format_seconds(f.step), f.of_step(all_to_all), f.of_step(other));
  const double bytes = f.number("traffic.all_to_all_bytes_per_step");
  const double off_node = f.number("traffic.all_to_all_off_node_bytes_per_step");
  if (bytes > 0 && off_node >= 0)
    b.evidence += fmt::format("; {} of all-to-all a step, {:.0f}% of it between nodes",
                              format_bytes(bytes), 100 * off_node / bytes);
  b.advice = {"larger batch: training_config.micro_batch_size",
              "gradient accumulation: training_config.global_batch_size at the same micro-batch"};
  if (all_to_all > other) {
    b.advice.push_back(
        "overlap: distributed_config.comm_optimization.all_to_all_overlap; with several "
        "micro-batches a step micro_batch_overlap");
    if (off_node > 0.3 * bytes)
      b.advice.push_back(
          "keep expert parallelism inside a node: a smaller "
          "distributed_config.expert_parallel_size");
    b.advice.push_back("FSDP and smaller expert-parallel groups move fewer tokens");
  } else {
    b.advice.push_back(
        "overlap: distributed_config.comm_optimization.gradient_reduction_overlap; larger "
        "gradient_bucket_bytes");
  }
  found.push_back(b);
}

void imbalance(const Facts& f, std::vector<Bottleneck>& found) {
  const Json::Value& ranks = f.run.report["step_parts_seconds_per_rank"]["compute"];
  double mean = 0, most = 0;
  Json::ArrayIndex busiest = 0;
  for (Json::ArrayIndex r = 0; r < ranks.size(); ++r) {
    const double seconds = ranks[r].asDouble();
    mean += seconds / ranks.size();
    if (seconds > most) most = seconds, busiest = r;
  }
  double worst_ranks = 1, worst_experts = 1;
  for (const Json::Value& layer : f.run.report["routing"]["layers"]) {
    worst_ranks = std::max(worst_ranks, layer["imbalance_ranks"].asDouble());
    worst_experts = std::max(worst_experts, layer["imbalance_experts"].asDouble());
  }
  const double uneven = (most - mean) / f.step, idle = f.part("idle") / f.step;
  if (uneven < 0.1 && !(idle >= 0.1 && worst_ranks > 1.3)) return;
  Bottleneck b;
  b.kind = "imbalance";
  b.share = std::max(uneven, idle);
  b.evidence = fmt::format(
      "rank {} computes {} a step, the mean is {}; idle {}; the fullest rank gets {:.2f} times the "
      "mean load, the fullest expert {:.2f}",
      busiest, format_seconds(most), format_seconds(mean), f.of_step(f.part("idle")), worst_ranks,
      worst_experts);
  b.advice = {"balance loss: model_config.moe_layer_config.aux_loss_factor",
              "capacity: model_config.moe_layer_config.capacity_factor bounds the fullest expert",
              "more experts per rank: a smaller distributed_config.expert_parallel_size"};
  found.push_back(b);
}

void memory(const Facts& f, std::vector<Bottleneck>& found) {
  const double capacity = f.number("memory.capacity_bytes");
  double peak = 0;
  Json::ArrayIndex fullest = 0;
  const Json::Value& ranks = f.run.report["memory"]["peak_bytes_per_rank"];
  for (Json::ArrayIndex r = 0; r < ranks.size(); ++r)
    if (ranks[r].asDouble() > peak) peak = ranks[r].asDouble(), fullest = r;
  bool over = false;
  for (const Json::Value& verdict : f.run.report["verdicts"])
    over = over || verdict["kind"].asString() == "out_of_memory";
  if (!over && !(capacity > 0 && peak >= 0.9 * capacity)) return;
  Bottleneck b;
  b.kind = "memory";
  b.share = capacity > 0 ? peak / capacity : 1;
  b.evidence = fmt::format("rank {} peaks at {}", fullest, format_bytes(peak));
  if (capacity > 0)
    b.evidence += fmt::format(", {:.0f}% of its {}", 100 * b.share, format_bytes(capacity));
  std::string largest;
  double most = 0;
  const Json::Value& classes = f.run.report["memory"]["classes"];
  for (const std::string& name : classes.getMemberNames())
    if (classes[name].asDouble() > most) most = classes[name].asDouble(), largest = name;
  if (!largest.empty())
    b.evidence += fmt::format("; most of it {} ({})", largest, format_bytes(most));
  b.advice = {"sharding: distributed_config.zero_stage 1 (optimizer state) to 3 (parameters too)",
              "fewer experts per rank: a larger distributed_config.expert_parallel_size"};
  if (largest.find("activation") != largest.npos || largest.find("dispatch") != largest.npos)
    b.advice.insert(b.advice.begin(),
                    {"a smaller training_config.micro_batch_size with more accumulation",
                     "model_config.moe_layer_config.capacity_factor bounds dispatch buffers"});
  b.advice.push_back(
      "activations made again: training_config.recompute; state in host memory: "
      "distributed_config.fsdp.cpu_offload");
  found.push_back(b);
}

void waiting(const Facts& f, const char* name, double line, std::vector<std::string> advice,
             std::vector<Bottleneck>& found) {
  const double seconds = f.part(name);
  if (seconds / f.step < line) return;
  found.push_back(
      {name, seconds / f.step,
       fmt::format("{} takes {} of a step of {}", name, f.of_step(seconds), format_seconds(f.step)),
       std::move(advice)});
}

}  // namespace

std::vector<Bottleneck> find_bottlenecks(const Run& run) {
  std::vector<Bottleneck> found;
  Facts f{run, 0};
  const Json::Value& parts = run.report["step_parts_seconds"];
  if (!parts.isObject()) return found;
  for (const std::string& name : parts.getMemberNames())
    if (parts[name].isNumeric()) f.step += parts[name].asDouble();
  if (f.step <= 0) return found;
  communication(f, found);
  imbalance(f, found);
  memory(f, found);
  waiting(
      f, "host", 0.15,
      {"larger micro-batches: fewer, longer kernels", "fewer host syncs: see host_syncs_per_step"},
      found);
  waiting(f, "bubble", 0.15,
          {"more micro-batches per step", "fewer pipeline stages, or an interleaved schedule"},
          found);
  waiting(f, "data", 0.15, {"read ahead, or from a faster disk"}, found);
  std::stable_sort(found.begin(), found.end(),
                   [](const Bottleneck& a, const Bottleneck& b) { return a.share > b.share; });
  if (!found.empty()) return found;
  Bottleneck b;
  b.kind = "compute";
  b.share = f.part("compute") / f.step;
  b.evidence = fmt::format("compute takes {} of a step of {}; nothing else is in its way",
                           f.of_step(f.part("compute")), format_seconds(f.step));
  const double mfu = f.number("throughput.mfu");
  if (!std::isnan(mfu)) b.evidence += fmt::format("; MFU {:.1f}%", 100 * mfu);
  const double router = f.number("routing.router_share_of_compute");
  if (!std::isnan(router)) b.evidence += fmt::format("; routers are {:.1f}% of it", 100 * router);
  b.advice = {"larger micro-batches raise the rate of matrix products, where memory allows"};
  found.push_back(b);
  return found;
}

Json::Value bottlenecks_json(const std::vector<Bottleneck>& bottlenecks) {
  Json::Value list(Json::arrayValue);
  for (const Bottleneck& b : bottlenecks) {
    Json::Value json(Json::objectValue);
    json["kind"] = b.kind;
    json["share"] = b.share;
    json["evidence"] = b.evidence;
    json["advice"] = Json::Value(Json::arrayValue);
    for (const std::string& line : b.advice) json["advice"].append(line);
    list.append(json);
  }
  return list;
}

}  // namespace moetwin
