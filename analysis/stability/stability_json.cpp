#include <cmath>

#include "analysis/stability/stability.h"

namespace moetwin {

namespace {

Json::Value number(double value) {
  return std::isfinite(value) ? Json::Value(value) : Json::Value();
}

Json::Value metrics_json(const RoutingMetrics& m) {
  Json::Value json(Json::objectValue);
  json["load_cv"] = m.load_cv;
  json["imbalance_experts"] = m.imbalance_experts;
  json["imbalance_ranks"] = m.imbalance_ranks;
  json["max_violation"] = m.imbalance_experts - 1;
  json["entropy"] = m.entropy;
  json["dead_share"] = m.dead_share;
  return json;
}

Json::Value layer_json(const LoadMetrics& m) {
  Json::Value json(Json::objectValue);
  json["layer"] = Json::Int64(m.layer);
  json["experts"] = Json::Int64(m.experts);
  json["first_step"] = Json::Int64(m.first_step);
  json["last_step"] = Json::Int64(m.last_step);
  json["assignments_per_step"] = m.assignments;
  json["per_step"] = metrics_json(m.per_step);
  json["mean_load"] = metrics_json(m.mean_load);
  json["dropped_share"] = number(m.dropped_share);
  json["source_ratio"] = number(m.source_ratio);
  json["dead_experts"] = Json::Value(Json::arrayValue);
  for (int64_t e : m.dead) json["dead_experts"].append(Json::Int64(e));
  json["churn"] = number(m.churn);
  json["router_entropy"] = number(m.router_entropy);
  json["logit_std"] = number(m.logit_std);
  json["harm"] = number(m.harm);
  json["bias_sign_flips"] = number(m.bias_flips);
  return json;
}

}  // namespace

Json::Value stability_json(const StabilityReport& report) {
  Json::Value json(Json::objectValue);
  json["verdicts"] = Json::Value(Json::arrayValue);
  for (const Finding& f : report.findings) json["verdicts"].append(finding_json(f));
  json["layers"] = Json::Value(Json::arrayValue);
  for (const LoadMetrics& m : report.layers) json["layers"].append(layer_json(m));
  Json::Value& loss = json["loss"];
  loss["first"] = report.loss.known ? number(report.loss.first) : Json::Value();
  loss["lowest"] = report.loss.known ? number(report.loss.lowest) : Json::Value();
  loss["last"] = report.loss.known ? number(report.loss.last) : Json::Value();
  loss["scatter"] = number(report.loss.scatter);
  loss["spikes"] = Json::Value(Json::arrayValue);
  for (int64_t step : report.loss.spikes) loss["spikes"].append(Json::Int64(step));
  json["notes"] = Json::Value(Json::arrayValue);
  for (const std::string& note : report.notes) json["notes"].append(note);
  return json;
}

}  // namespace moetwin
