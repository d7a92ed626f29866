#include "analysis/validate/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "analysis/validate/kind.h"
#include "analysis/validate/ranking.h"
#include "core/base/error.h"

namespace moetwin {
namespace {

namespace fs = std::filesystem;

std::vector<Kind> chosen(const ValidateOptions& options) {
  std::vector<Kind> all = kinds(), some;
  std::vector<std::string> names;
  for (const Kind& kind : all) names.push_back(kind.name);
  for (const std::string& name : options.kinds)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw Error(ErrorClass::configuration, fmt::format("--kind \"{}\" is not known; legal: {}",
                                                         name, fmt::join(names, ", ")));
  for (const Kind& kind : all)
    if (options.kinds.empty() ||
        std::find(options.kinds.begin(), options.kinds.end(), kind.name) != options.kinds.end())
      some.push_back(kind);
  return some;
}

/// The table of a kind; empty: it is not there.
std::string table_of(const std::string& data, const Kind& kind) {
  std::error_code none;
  const fs::path path(data);
  if (!fs::is_directory(path, none))
    return path.stem().string() == kind.file_stem ? path.string() : "";
  const fs::path table = path / (std::string(kind.file_stem) + ".csv");
  return fs::is_regular_file(table, none) ? table.string() : "";
}

/// Which of `count` rows a sample of `most` takes: evenly spaced, the first and the last included.
bool in_sample(size_t index, size_t count, int64_t most) {
  if (most <= 0 || count <= static_cast<size_t>(most)) return true;
  const auto m = static_cast<size_t>(most);
  if (m == 1) return index == 0;
  for (size_t i = 0; i < m; ++i)
    if (i * (count - 1) / (m - 1) == index) return true;
  return false;
}

std::vector<PublishedRow> rows_of(const std::string& table, const Kind& kind,
                                  const ValidateOptions& options) {
  std::vector<PublishedRow> all = read_published(table, kind.columns), some;
  std::map<std::string, size_t> counts, seen;
  for (const PublishedRow& row : all) ++counts[row.series()];
  for (PublishedRow& row : all) {
    const std::string series = row.series();
    if (series.compare(0, options.series.size(), options.series) != 0) continue;
    if (in_sample(seen[series]++, counts[series], options.sample)) some.push_back(std::move(row));
  }
  return some;
}

KindResult run_kind(const Kind& kind, const std::string& table, const ValidateOptions& options,
                    const MakeCluster& make) {
  const std::vector<PublishedRow> rows = rows_of(table, kind, options);
  RowPlan plan;
  for (const PublishedRow& row : rows) {
    RowResult result;
    result.id = row.id();
    result.series = row.series();
    plan.results.push_back(std::move(result));
  }
  kind.plan(rows, plan);
  run_batches(plan.batches, make, options.batches, [&](size_t row, const Prediction& prediction) {
    RowResult& result = plan.results[row];
    result.reason = prediction.note.substr(0, prediction.note.find('\n'));
    result.predicted = prediction.value;
    result.standing = std::isfinite(prediction.value) && prediction.value > 0 ? RowStanding::scored
                                                                              : RowStanding::failed;
  });
  KindResult out{kind.name, kind.file_stem, kind.what, std::move(plan.results), {}};
  out.score = score(out.rows);
  return out;
}

}  // namespace

std::vector<KindResult> validate(const ValidateOptions& options, const MakeCluster& make) {
  std::error_code none;
  if (!fs::exists(options.data, none))
    throw Error(ErrorClass::configuration,
                fmt::format("--data \"{}\": there is no such directory or table", options.data));
  const std::vector<Kind> asked = chosen(options);
  std::vector<KindResult> results;
  std::vector<std::string> stems;
  for (const Kind& kind : asked) {
    stems.push_back(std::string(kind.file_stem) + ".csv");
    const std::string table = table_of(options.data, kind);
    if (!table.empty()) results.push_back(run_kind(kind, table, options, make));
  }
  if (results.empty())
    throw Error(ErrorClass::configuration, fmt::format("--data \"{}\" has none of the tables {}",
                                                       options.data, fmt::join(stems, ", ")));
  return results;
}

namespace {

Json::Value number_or_null(double value) {
  return std::isfinite(value) ? Json::Value(value) : Json::Value();
}

const char* standing_name(RowStanding standing) {
  switch (standing) {
    case RowStanding::scored:
      return "scored";
    case RowStanding::failed:
      return "failed";
    case RowStanding::other_hardware:
      return "other_hardware";
    default:
      return "not_expressible";
  }
}

}  // namespace

Json::Value validation_json(const std::vector<KindResult>& kinds) {
  Json::Value json;
  json["schema"] = "moetwin-validation/1";
  json["kinds"] = Json::Value(Json::objectValue);
  json["rows"] = Json::Value(Json::arrayValue);
  for (const KindResult& kind : kinds) {
    const KindScore& s = kind.score;
    Json::Value& k = json["kinds"][kind.file_stem];
    k["rows"] = Json::UInt64(s.rows);
    k["expressed"] = Json::UInt64(s.scored + s.failed);
    k["scored"] = Json::UInt64(s.scored);
    k["other_hardware"] = Json::UInt64(s.other_hardware);
    k["median_abs_error"] = number_or_null(s.median_abs_error);
    k["p95_abs_error"] = number_or_null(s.p95_abs_error);
    k["bias"] = number_or_null(s.bias);
    k["row_median_abs_error"] = number_or_null(s.row_median_abs_error);
    k["row_mean_abs_error"] = number_or_null(s.row_mean_abs_error);
    if (const Ranking ranking = rank_pairs(kind.rows); ranking.pairs > 0) {
      k["ranking"]["pairs"] = Json::UInt64(ranking.pairs);
      k["ranking"]["right"] = Json::UInt64(ranking.right);
    }
    for (const auto& [reason, count] : s.not_expressible)
      k["not_expressible"][reason] = Json::UInt64(count);
    for (const SeriesScore& one : s.series) {
      Json::Value& entry = k["series"][one.series];
      entry["rows"] = Json::UInt64(one.rows);
      entry["median_abs_error"] = one.median_abs_error;
      entry["p95_abs_error"] = one.p95_abs_error;
      entry["bias"] = one.median_error;
    }
    for (const RowResult& row : kind.rows) {
      Json::Value entry;
      const bool scored = row.standing == RowStanding::scored;
      entry["id"] = row.id;
      entry["standing"] = standing_name(row.standing);
      entry["measured"] = row.measured > 0 ? Json::Value(row.measured) : Json::Value();
      entry["predicted"] = scored ? Json::Value(row.predicted) : Json::Value();
      entry["unit"] = row.unit;
      entry["error"] = scored ? Json::Value(row.error()) : Json::Value();
      entry["reason"] = row.reason;
      if (!row.caveat.empty()) entry["caveat"] = row.caveat;
      json["rows"].append(entry);
    }
  }
  return json;
}

}  // namespace moetwin
