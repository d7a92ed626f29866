// The table of ops as a file, as JSON and on a screen.

#include <fmt/format.h>

#include <algorithm>

#include "core/base/units.h"
#include "core/record/bars.h"
#include "core/record/op_table.h"
#include "core/record/step_row.h"

namespace moetwin {
namespace {

double mean_seconds(const OpRow& row) {
  return row.sums.seconds / static_cast<double>(row.sums.calls);
}

double share_of(const OpRow& row, double whole) { return whole > 0 ? row.sums.seconds / whole : 0; }

/// Time of one rank in one step: the mean that most_seconds is set against.
double rank_step_seconds(const OpTable& table, const OpRow& row) {
  return row.sums.seconds / static_cast<double>(table.ranks) /
         static_cast<double>(table.steps.size());
}

}  // namespace

std::string steps_text(const std::vector<int64_t>& steps) {
  const auto count = static_cast<int64_t>(steps.size());
  if (count == 1) return fmt::format("step {}", steps[0]);
  if (steps.back() - steps.front() == count - 1)
    return fmt::format("steps {}-{}", steps.front(), steps.back());
  return fmt::format("{} steps from {} to {}", count, steps.front(), steps.back());
}

std::string op_table_csv(const OpTable& table) {
  std::string text =
      "op,activity,phase,stream,group,calls,total_seconds,mean_seconds,share,bytes,"
      "most_seconds_of_a_rank_and_step,most_rank\n";
  const double whole = table.device_seconds();
  for (const OpRow& row : table.rows)
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", row.key.name,
                        activity_name(row.key.activity), phase_name(row.key.phase), row.key.stream,
                        row.key.group, row.sums.calls, shortest(row.sums.seconds),
                        shortest(mean_seconds(row)), shortest(share_of(row, whole)), row.sums.bytes,
                        shortest(row.most_seconds), row.most_rank);
  return text;
}

Json::Value op_table_json(const OpTable& table) {
  Json::Value json(Json::objectValue);
  Json::Value& steps = json["steps"] = Json::Value(Json::arrayValue);
  for (const int64_t step : table.steps) steps.append(Json::Int64(step));
  json["ranks"] = Json::Int64(table.ranks);
  const double whole = table.device_seconds();
  json["device_seconds"] = whole;
  json["file"] = "profile.csv";
  Json::Value& ops = json["ops"] = Json::Value(Json::arrayValue);
  for (const OpRow& row : table.by_op) {
    Json::Value op(Json::objectValue);
    op["op"] = row.key.name;
    op["activity"] = activity_name(row.key.activity);
    op["calls"] = Json::Int64(row.sums.calls);
    op["total_seconds"] = row.sums.seconds;
    op["mean_seconds"] = mean_seconds(row);
    op["share"] = share_of(row, whole);
    op["bytes"] = Json::Int64(row.sums.bytes);
    op["most_seconds_of_a_rank_and_step"] = row.most_seconds;
    op["most_rank"] = Json::Int64(row.most_rank);
    ops.append(op);
  }
  return json;
}

std::vector<std::string> op_table_lines(const OpTable& table, size_t most) {
  if (table.by_op.empty()) return {};
  const double whole = table.device_seconds();
  std::vector<std::string> lines;
  lines.push_back(fmt::format("Ops by device time ({}, {} rank{} together: {})",
                              steps_text(table.steps), table.ranks, table.ranks == 1 ? "" : "s",
                              format_seconds(whole)));
  lines.push_back("  " + left("op", 26) + right("calls", 10) + right("total", 12) +
                  right("mean", 12) + right("share", 9) + "  busiest rank of a step");
  OpSums rest;
  for (size_t i = 0; i < table.by_op.size(); ++i) {
    const OpRow& row = table.by_op[i];
    if (i >= most) {
      rest.calls += row.sums.calls;
      rest.seconds += row.sums.seconds;
      continue;
    }
    const double mean = rank_step_seconds(table, row);
    lines.push_back(
        "  " + left(row.key.name, 26) + right(fmt::format("{}", row.sums.calls), 10) +
        right(format_seconds(row.sums.seconds), 12) + right(format_seconds(mean_seconds(row)), 12) +
        right(fmt::format("{:.1f} %", 100 * share_of(row, whole)), 9) +
        (mean > 0 ? fmt::format("  {:.2f} x mean, rank {}", row.most_seconds / mean, row.most_rank)
                  : std::string()));
  }
  if (table.by_op.size() > most)
    lines.push_back("  " + left(fmt::format("{} more", table.by_op.size() - most), 26) +
                    right(fmt::format("{}", rest.calls), 10) +
                    right(format_seconds(rest.seconds), 12) + right("", 12) +
                    right(fmt::format("{:.1f} %", whole > 0 ? 100 * rest.seconds / whole : 0), 9));
  return lines;
}

}  // namespace moetwin
