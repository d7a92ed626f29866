#include "analysis/stability/finding.h"

#include <fmt/format.h>

namespace moetwin {

namespace {

Json::Value known(double value) { return value < 0 ? Json::Value() : Json::Value(value); }
Json::Value known(int64_t value) {
  return value < 0 ? Json::Value() : Json::Value(Json::Int64(value));
}
Json::Value list(const std::vector<int64_t>& values) {
  Json::Value json(Json::arrayValue);
  for (int64_t value : values) json.append(Json::Int64(value));
  return json;
}

}  // namespace

std::string advice_text(const Finding& finding) {
  std::string text;
  for (const Knob& knob : finding.knobs)
    text +=
        fmt::format("{}{}: {} ({})", text.empty() ? "" : "; ", knob.key, knob.change, knob.effect);
  return text;
}

Json::Value finding_json(const Finding& finding) {
  Json::Value json(Json::objectValue);
  json["kind"] = finding.kind;
  json["layer"] = known(finding.layer);
  json["onset_step"] = known(finding.onset_step);
  json["end_step"] = known(finding.end_step);
  json["period_steps"] = known(finding.period_steps);
  json["amplitude"] = known(finding.amplitude);
  json["confidence"] = finding.confidence;
  json["strength"] = finding.strength.empty() ? Json::Value() : Json::Value(finding.strength);
  json["experts"] = list(finding.experts);
  json["against"] = list(finding.against);
  json["evidence"] = finding.evidence;
  json["advice"] = advice_text(finding);
  json["knobs"] = Json::Value(Json::arrayValue);
  for (const Knob& knob : finding.knobs) {
    Json::Value entry(Json::objectValue);
    entry["key"] = knob.key;
    entry["change"] = knob.change;
    entry["effect"] = knob.effect;
    json["knobs"].append(entry);
  }
  return json;
}

Verdict to_verdict(const Finding& finding) {
  Verdict verdict;
  verdict.kind = finding.kind;
  verdict.layer = finding.layer;
  verdict.onset_step = finding.onset_step;
  verdict.end_step = finding.end_step;
  verdict.strength = finding.strength;
  verdict.period_steps = finding.period_steps;
  verdict.amplitude = finding.amplitude;
  verdict.confidence = finding.confidence;
  verdict.evidence = finding.evidence;
  verdict.advice = advice_text(finding);
  return verdict;
}

}  // namespace moetwin
