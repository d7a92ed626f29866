#include "analysis/compare/compare.h"

#include <fmt/format.h>
#include <json/writer.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/base/error.h"

namespace moetwin {

const char* standing_name(Standing standing) {
  switch (standing) {
    case Standing::equal:
      return "equal";
    case Standing::within:
      return "within noise";
    case Standing::beyond:
      return "beyond noise";
    case Standing::one_value:
      return "one value each";
    case Standing::not_judged:
      return "not judged";
  }
  return "";
}

namespace {

std::string text(const Json::Value& value) {
  if (value.isNull()) return "(absent)";
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  return Json::writeString(builder, value);
}

void walk(const std::string& path, const Json::Value& a, const Json::Value& b,
          std::vector<KeyDifference>& found) {
  if (a == b) return;
  if (!a.isObject() || !b.isObject()) {
    found.push_back({path, text(a), text(b)});
    return;
  }
  std::set<std::string> keys;
  for (const std::string& key : a.getMemberNames()) keys.insert(key);
  for (const std::string& key : b.getMemberNames()) keys.insert(key);
  for (const std::string& key : keys)
    walk(path.empty() ? key : path + "." + key, a[key], b[key], found);
}

/// A stream of draws per figure, so that leaving one out does not change another's interval.
uint64_t stream_of(const std::string& name) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

/// Values at common steps.
void common(const Figure& a, const Figure& b, std::vector<double>& left,
            std::vector<double>& right) {
  std::map<double, double> by_step;
  for (size_t i = 0; i < a.steps.size(); ++i) by_step[a.steps[i]] = a.series[i];
  for (size_t i = 0; i < b.steps.size(); ++i) {
    const auto found = by_step.find(b.steps[i]);
    if (found == by_step.end()) continue;
    left.push_back(found->second);
    right.push_back(b.series[i]);
  }
}

/// Of `left` where both are known.
double mean_of_known(const std::vector<double>& left, const std::vector<double>& right) {
  double sum = 0, known = 0;
  for (size_t i = 0; i < left.size(); ++i)
    if (std::isfinite(left[i]) && std::isfinite(right[i])) sum += left[i], ++known;
  return sum / known;
}

Difference difference_of(const Figure& a, const Figure& b, bool seeds_differ, double least_rho) {
  Difference d;
  d.a = a;
  d.b = b;
  const double scale = std::abs(a.value);
  d.absolute = b.value - a.value;
  d.relative = d.absolute / scale;
  if (a.series.empty() || b.series.empty()) {
    d.standing = a.value == b.value ? Standing::equal : Standing::one_value;
    d.why = "one value each: how far noise moves it is unknown";
    return d;
  }
  std::vector<double> left, right;
  common(a, b, left, right);
  d.test = noise_test(left, right, stream_of(a.name), least_rho);
  if (d.test.judged) {
    // Of the steps that were compared: A may have more than B.
    const double compared = std::abs(mean_of_known(left, right));
    d.absolute = d.test.difference;
    d.relative = d.absolute / compared;
    d.low = d.test.low / compared;
    d.high = d.test.high / compared;
    d.p = d.test.p;
  }
  const bool equal =
      !left.empty() && std::equal(left.begin(), left.end(), right.begin(), [](double x, double y) {
        return x == y || (std::isnan(x) && std::isnan(y));
      });
  if (equal) {
    d.standing = Standing::equal;
  } else if (seeds_differ && a.learned) {
    d.standing = Standing::not_judged;
    d.why = "the seeds differ: one pair does not tell what else does";
  } else if (!d.test.judged) {
    d.why = d.test.why_not;
  } else {
    d.standing = Standing::within;
  }
  return d;
}

/// The median autocorrelation of the figures that have noise: of what was learned, or of the rest.
double common_rho(const std::vector<Difference>& differences, bool learned) {
  std::vector<double> rho;
  for (const Difference& d : differences)
    if (d.a.learned == learned && d.test.correlation_steps > 1) rho.push_back(d.test.rho);
  if (rho.empty()) return 0;
  std::sort(rho.begin(), rho.end());
  return rho[rho.size() / 2];
}

std::string percent(double relative) { return fmt::format("{:+.1f}%", 100 * relative); }

/// Which part carries most of a slower or faster step, and which kind of op of it.
std::string explain(const PairComparison& pair) {
  const Difference *step = nullptr, *part = nullptr;
  for (const Difference& d : pair.differences) {
    if (d.standing != Standing::beyond) continue;
    if (d.a.name == "step_seconds") step = &d;
    const bool is_part = d.a.group == "step parts" &&
                         d.a.name.find("hidden") == std::string::npos &&
                         d.a.name != "forward_seconds" && d.a.name != "backward_seconds" &&
                         d.a.name != "recompute_seconds" && d.a.name != "optimizer_seconds";
    if (is_part && (!part || std::abs(d.absolute) > std::abs(part->absolute))) part = &d;
  }
  std::string text;
  if (step)
    text = fmt::format("the step is {} ({:.4g} s to {:.4g} s)", percent(step->relative),
                       step->a.value, step->b.value);
  if (part) {
    text +=
        fmt::format("{}{} is {}", text.empty() ? "" : "; ", part->a.name, percent(part->relative));
    if (step && step->absolute != 0)
      text += fmt::format(", {:.0f}% of the difference", 100 * part->absolute / step->absolute);
  }
  if (pair.ops.any && !pair.ops.classes.empty() && (step || part)) {
    const OpClass& c = pair.ops.classes.front();
    const double ratio = c.ratio();
    if (c.a.seconds != c.b.seconds)
      text += fmt::format(
          "; of all ops `{}`{} differs most: {}", c.name, c.group.empty() ? "" : " in " + c.group,
          std::isnan(ratio) ? "only one run has it" : percent(ratio - 1) + " a call");
  }
  return text;
}

std::string headline_of(const PairComparison& pair) {
  if (pair.identical) return "identical in every figure";
  int64_t beyond = 0, judged = 0;
  const Difference* largest = nullptr;
  for (const Difference& d : pair.differences) {
    judged += d.standing == Standing::within || d.standing == Standing::beyond ||
              d.standing == Standing::equal;
    if (d.standing != Standing::beyond) continue;
    ++beyond;
    if (!largest || std::abs(d.relative) > std::abs(largest->relative)) largest = &d;
  }
  if (beyond == 0) return fmt::format("no difference beyond noise in {} judged figures", judged);
  const std::string why = explain(pair);
  return fmt::format(
      "{} of {} judged figures differ beyond noise: {}", beyond, judged,
      !why.empty() ? why : fmt::format("{} {}", largest->a.name, percent(largest->relative)));
}

PairComparison compare_pair(const Run& a, const Run& b) {
  PairComparison pair;
  const Json::Value &settings_a = a.report["settings"], &settings_b = b.report["settings"];
  pair.scenario_known = settings_a.isObject() && settings_b.isObject();
  if (pair.scenario_known) pair.scenario = setting_differences(settings_a, settings_b);
  for (const char* key : {"backend", "fidelity", "cluster", "device", "world_size"})
    if (a.report[key] != b.report[key])
      pair.scenario.push_back({key, text(a.report[key]), text(b.report[key])});
  const bool seeds_differ = a.report["seed"] != b.report["seed"];
  const std::vector<Figure> left = figures_of(a), right = figures_of(b);
  for (const Figure& f : left)
    for (const Figure& g : right)
      if (f.name == g.name) pair.differences.push_back(difference_of(f, g, seeds_differ, 0));
  const double rho[] = {common_rho(pair.differences, false), common_rho(pair.differences, true)};
  for (Difference& d : pair.differences)
    if (d.standing == Standing::within || d.standing == Standing::not_judged)
      d = difference_of(d.a, d.b, seeds_differ, rho[d.a.learned]);
  std::vector<double> p;
  for (const Difference& d : pair.differences)
    if (d.standing == Standing::within || d.standing == Standing::equal) p.push_back(d.p);
  const std::vector<bool> falls = holm(p);
  size_t at = 0;
  for (Difference& d : pair.differences)
    if (d.standing == Standing::within || d.standing == Standing::equal) {
      const bool excludes_zero = d.low > 0 || d.high < 0;
      if (falls[at++] && excludes_zero) d.standing = Standing::beyond;
    }
  pair.ops = align(read_op_lists(a), read_op_lists(b));
  const auto& ops = pair.ops.classes;
  pair.identical = !pair.differences.empty() && pair.ops.first_mismatch.empty() &&
                   left.size() == right.size() &&
                   std::all_of(pair.differences.begin(), pair.differences.end(),
                               [](const Difference& d) {
                                 return d.standing == Standing::equal && d.a.steps == d.b.steps;
                               }) &&
                   std::all_of(ops.begin(), ops.end(),
                               [](const OpClass& c) { return c.a.seconds == c.b.seconds; });
  pair.headline = headline_of(pair);
  return pair;
}

}  // namespace

std::vector<KeyDifference> setting_differences(const Json::Value& a, const Json::Value& b) {
  std::vector<KeyDifference> found;
  walk("", a, b, found);
  return found;
}

Comparison compare(std::vector<Run> runs) {
  if (runs.size() < 2) throw Error(ErrorClass::configuration, "compare needs at least two runs");
  Comparison comparison;
  comparison.runs = std::move(runs);
  for (size_t i = 1; i < comparison.runs.size(); ++i)
    comparison.pairs.push_back(compare_pair(comparison.runs[0], comparison.runs[i]));
  return comparison;
}

bool beyond_tolerance(const PairComparison& pair, double tolerance, bool strict) {
  return std::any_of(pair.differences.begin(), pair.differences.end(), [&](const Difference& d) {
    const bool counts =
        d.standing == Standing::beyond || (strict && d.standing == Standing::one_value);
    return counts && !(std::abs(d.relative) <= tolerance);
  });
}

}  // namespace moetwin
