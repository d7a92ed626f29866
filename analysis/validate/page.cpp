#include "analysis/validate/page.h"

#include <fmt/format.h>
#include <json/value.h>

#include <cmath>
#include <map>

#include "analysis/page/html.h"
#include "analysis/validate/ranking.h"

namespace moetwin {
namespace {

Json::Value number(double value) {
  return std::isfinite(value) ? Json::Value(value) : Json::Value();
}

Json::Value row_json(const RowResult& row) {
  Json::Value entry;
  entry["id"] = row.id;
  entry["series"] = row.series;
  entry["measured"] = row.measured;
  entry["predicted"] = row.predicted;
  entry["unit"] = row.unit;
  entry["why"] = row.caveat.empty() ? row.reason : row.reason + " [" + row.caveat + "]";
  return entry;
}

Json::Value kind_json(const KindResult& kind) {
  const KindScore& s = kind.score;
  Json::Value json;
  json["name"] = kind.name;
  json["what"] = kind.what;
  json["table"] = kind.file_stem + ".csv";
  json["rows"] = Json::UInt64(s.rows);
  json["scored"] = Json::UInt64(s.scored);
  json["other"] = Json::UInt64(s.other_hardware);
  json["median"] = number(s.median_abs_error);
  json["row_median"] = number(s.row_median_abs_error);
  json["p95"] = number(s.p95_abs_error);
  json["bias"] = number(s.bias);
  json["points"] = json["series"] = json["worst"] = json["left"] = Json::Value(Json::arrayValue);
  for (const RowResult& row : kind.rows)
    if (row.standing == RowStanding::scored) json["points"].append(row_json(row));
  for (const RowResult* row : worst_rows(kind.rows, 10)) json["worst"].append(row_json(*row));
  for (const SeriesScore& one : s.series) {
    Json::Value entry;
    entry["name"] = one.series;
    entry["rows"] = Json::UInt64(one.rows);
    entry["median"] = one.median_abs_error;
    entry["p95"] = one.p95_abs_error;
    entry["bias"] = one.median_error;
    json["series"].append(entry);
  }
  std::map<std::string, size_t> left;
  for (const RowResult& row : kind.rows)
    if (row.standing != RowStanding::scored)
      ++left[(row.standing == RowStanding::other_hardware ? "other hardware: " : "") + row.reason];
  for (const auto& [reason, count] : left) {
    Json::Value entry(Json::arrayValue);
    entry.append(reason);
    entry.append(Json::UInt64(count));
    json["left"].append(entry);
  }
  const Ranking ranking = rank_pairs(kind.rows);
  json["pairs"] = Json::UInt64(ranking.pairs);
  json["right"] = Json::UInt64(ranking.right);
  return json;
}

}  // namespace

std::string validation_page(const std::vector<KindResult>& kinds) {
  Json::Value data;
  data["title"] = "Predicted against measured";
  data["subtitle"] = "published measurements · modelled cluster";
  data["footer"] =
      "Written by moetwin validate. Every row is a published measurement; its prediction is a run "
      "of "
      "the modelled cluster that knows the row's inputs and a machine profile, never the row's "
      "result. Charts: D3 (d3js.org), BSD licence.";
  data["validation"]["kinds"] = Json::Value(Json::arrayValue);
  for (const KindResult& kind : kinds) data["validation"]["kinds"].append(kind_json(kind));
  return page_html(data["title"].asString(), data);
}

}  // namespace moetwin
