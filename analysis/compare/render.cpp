#include "analysis/compare/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/units.h"

namespace moetwin {

namespace {

constexpr size_t kOpClasses = 12;  // shown in text and Markdown

std::string value_text(double value, const std::string& unit) {
  if (!std::isfinite(value)) return "-";
  if (unit == "s") return format_seconds(value);
  if (unit == "bytes") return format_bytes(value);
  if (unit == "tokens/s") return format_count(value) + "/s";
  return fmt::format("{:.4g}", value);
}

std::string change_text(const Difference& d) {
  if (d.standing == Standing::equal) return "0";
  if (std::isfinite(d.relative)) return fmt::format("{:+.2f}%", 100 * d.relative);
  return (d.absolute > 0 ? "+" : "") + value_text(d.absolute, d.a.unit);
}

std::string interval_text(const Difference& d) {
  if (!d.test.judged || d.standing == Standing::equal || !std::isfinite(d.low)) return "";
  return fmt::format("{:+.2f}% to {:+.2f}%", 100 * d.low, 100 * d.high);
}

/// Cells of a table as lines of equal columns: the first to the left, the others to the right.
using Rows = std::vector<std::vector<std::string>>;

std::string plain(const Rows& rows) {
  std::vector<size_t> width;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += i == 0 ? fmt::format("  {:<{}}", row[i], width[i])
                     : fmt::format("  {:>{}}", row[i], width[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string markdown(const Rows& rows) {
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    text += "|";
    for (const std::string& cell : rows[r]) {
      std::string safe;
      for (char c : cell) safe += c == '|' ? "\\|" : std::string(1, c);
      text += " " + safe + " |";
    }
    text += "\n";
    if (r) continue;
    text += "|";
    for (size_t i = 0; i < rows[0].size(); ++i) text += i ? "---:|" : "---|";
    text += "\n";
  }
  return text;
}

Rows figure_rows(const Comparison& c, const PairComparison& pair, size_t other) {
  Rows rows = {{"figure", c.runs[0].name, c.runs[other].name, "difference", "95% interval", ""}};
  std::string group;
  for (const Difference& d : pair.differences) {
    if (d.a.value == 0 && d.b.value == 0 && d.standing == Standing::equal) continue;
    if (d.a.group != group) rows.push_back({group = d.a.group});
    rows.push_back({"  " + d.a.name, value_text(d.a.value, d.a.unit),
                    value_text(d.b.value, d.b.unit), change_text(d), interval_text(d),
                    standing_name(d.standing)});
  }
  return rows;
}

Rows scenario_rows(const Comparison& c, const PairComparison& pair, size_t other) {
  Rows rows = {{"key", c.runs[0].name, c.runs[other].name}};
  for (const KeyDifference& d : pair.scenario) rows.push_back({d.key, d.a, d.b});
  return rows;
}

Rows op_rows(const PairComparison& pair) {
  Rows rows = {{"op, group, bytes", "calls", "seconds a call", "of the other", "difference"}};
  for (size_t i = 0; i < std::min(kOpClasses, pair.ops.classes.size()); ++i) {
    const OpClass& k = pair.ops.classes[i];
    const auto each = [](const OpClass::Side& side) {
      return side.calls ? format_seconds(side.seconds / static_cast<double>(side.calls)) : "-";
    };
    const double ratio = k.ratio();
    rows.push_back({fmt::format("{}{}, {}", k.name, k.group.empty() ? "" : " in " + k.group,
                                format_bytes(static_cast<double>(k.bytes))),
                    k.a.calls == k.b.calls ? std::to_string(k.a.calls)
                                           : fmt::format("{} / {}", k.a.calls, k.b.calls),
                    each(k.a), each(k.b),
                    std::isnan(ratio) ? "-" : fmt::format("{:+.1f}%", 100 * (ratio - 1))});
  }
  return rows;
}

std::string op_sentence(const Alignment& ops) {
  std::string text = fmt::format("{} of {} ops stand at the same place in both op lists",
                                 ops.aligned, std::max(ops.ops_a, ops.ops_b));
  if (!ops.first_mismatch.empty()) text += "; the first that do not: " + ops.first_mismatch;
  return text + ".";
}

std::string unjudged(const PairComparison& pair) {
  std::string text;
  for (const Difference& d : pair.differences) {
    if (d.why.empty() || d.standing == Standing::equal) continue;
    if (text.find(d.why) == text.npos) text += (text.empty() ? "" : "; ") + d.why;
  }
  return text;
}

template <class Table>
std::string document(const Comparison& c, const char* heading, Table&& table) {
  std::string text;
  for (size_t i = 0; i < c.pairs.size(); ++i) {
    const PairComparison& pair = c.pairs[i];
    text += fmt::format("{}{} against {}\n\n{}.\n", heading, c.runs[i + 1].name, c.runs[0].name,
                        pair.headline);
    const std::string why = unjudged(pair);
    if (!why.empty()) text += fmt::format("Not judged: {}.\n", why);
    text += "\n" + table(figure_rows(c, pair, i + 1));
    if (pair.scenario.empty())
      text += pair.scenario_known ? "\nThe scenarios are equal.\n"
                                  : "\nThe scenarios are unknown (no settings in report.json).\n";
    else
      text += "\nWhat differs in the scenarios\n\n" + table(scenario_rows(c, pair, i + 1));
    if (pair.ops.any) text += "\n" + op_sentence(pair.ops) + "\n\n" + table(op_rows(pair));
    text += "\n";
  }
  return text;
}

std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\n") == cell.npos) return cell;
  std::string text = "\"";
  for (char c : cell) text += c == '"' ? "\"\"" : std::string(1, c);
  return text + "\"";
}

std::string shortest_or_empty(double v) { return std::isfinite(v) ? fmt::format("{}", v) : ""; }

Json::Value number(double v) { return std::isfinite(v) ? Json::Value(v) : Json::Value(); }

Json::Value difference_json(const Difference& d) {
  Json::Value json(Json::objectValue);
  json["group"] = d.a.group;
  json["figure"] = d.a.name;
  json["source"] = d.a.source;
  json["unit"] = d.a.unit;
  json["a"] = number(d.a.value);
  json["b"] = number(d.b.value);
  json["difference"] = number(d.absolute);
  json["relative_difference"] = number(d.relative);
  const bool interval = d.test.judged && std::isfinite(d.low);
  json["relative_low"] = interval ? Json::Value(d.low) : Json::Value();
  json["relative_high"] = interval ? number(d.high) : Json::Value();
  json["p"] = d.test.judged ? Json::Value(d.p) : Json::Value();
  json["blocks"] = Json::Int64(d.test.blocks);
  json["block_steps"] = Json::Int64(d.test.block_steps);
  json["standing"] = standing_name(d.standing);
  json["beyond_noise"] = d.standing == Standing::beyond;
  if (!d.why.empty()) json["why"] = d.why;
  return json;
}

}  // namespace

std::string figure_text(const Figure& figure) { return value_text(figure.value, figure.unit); }

std::string comparison_text(const Comparison& c) { return document(c, "", plain); }

std::string comparison_markdown(const Comparison& c) { return document(c, "## ", markdown); }

std::string comparison_csv(const Comparison& c) {
  std::string text =
      "a,b,group,figure,unit,value_a,value_b,difference,relative_difference,relative_low,"
      "relative_high,standing\n";
  for (size_t i = 0; i < c.pairs.size(); ++i)
    for (const Difference& d : c.pairs[i].differences) {
      const bool interval = d.test.judged;
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", quoted(c.runs[0].name),
                          quoted(c.runs[i + 1].name), d.a.group, d.a.name, d.a.unit,
                          shortest_or_empty(d.a.value), shortest_or_empty(d.b.value),
                          shortest_or_empty(d.absolute), shortest_or_empty(d.relative),
                          interval ? shortest_or_empty(d.low) : "",
                          interval ? shortest_or_empty(d.high) : "", standing_name(d.standing));
    }
  return text;
}

Json::Value comparison_json(const Comparison& c) {
  Json::Value json(Json::objectValue);
  json["schema"] = "moetwin-comparison/1";
  for (const Run& run : c.runs) json["runs"].append(run.name);
  json["pairs"] = Json::Value(Json::arrayValue);
  for (const PairComparison& pair : c.pairs) {
    Json::Value entry(Json::objectValue);
    entry["headline"] = pair.headline;
    entry["identical"] = pair.identical;
    entry["figures"] = Json::Value(Json::arrayValue);
    for (const Difference& d : pair.differences) entry["figures"].append(difference_json(d));
    entry["scenario"] = Json::Value(Json::arrayValue);
    for (const KeyDifference& d : pair.scenario) {
      Json::Value key(Json::objectValue);
      key["key"] = d.key;
      key["a"] = d.a;
      key["b"] = d.b;
      entry["scenario"].append(key);
    }
    Json::Value& ops = entry["ops"];
    ops = Json::Value(Json::objectValue);
    if (pair.ops.any) {
      ops["aligned"] = Json::Int64(pair.ops.aligned);
      ops["ops_a"] = Json::Int64(pair.ops.ops_a);
      ops["ops_b"] = Json::Int64(pair.ops.ops_b);
      if (!pair.ops.first_mismatch.empty()) ops["first_mismatch"] = pair.ops.first_mismatch;
      for (const OpClass& k : pair.ops.classes) {
        Json::Value op(Json::objectValue);
        op["op"] = k.name;
        op["group"] = k.group;
        op["bytes"] = Json::Int64(k.bytes);
        op["calls_a"] = Json::Int64(k.a.calls);
        op["calls_b"] = Json::Int64(k.b.calls);
        op["seconds_a"] = k.a.seconds;
        op["seconds_b"] = k.b.seconds;
        op["ratio"] = number(k.ratio());
        ops["classes"].append(op);
      }
    }
    json["pairs"].append(entry);
  }
  return json;
}

}  // namespace moetwin
