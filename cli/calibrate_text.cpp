#include "cli/calibrate_text.h"

#include <fmt/format.h>

#include <sstream>

#include "cli/text_table.h"
#include "core/base/units.h"

namespace moetwin {
namespace {

/// 1.234e+12, or seconds in their unit.
std::string value_text(const FittedFigure& f) {
  return f.key.ends_with("seconds") ? format_seconds(f.value) : fmt::format("{:.4g}", f.value);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

std::string fit_text(const FitResult& fit, const ClusterProfile& base, const Measurements& m) {
  std::ostringstream out;
  out << fmt::format("Measured: {}\n  {} kernels, {} collectives, {} copies; base profile {}\n\n",
                     m.machine, m.kernels.size(), m.collectives.size(), m.copies.size(), base.name);
  TextTable figures({true, false});
  figures.row({"figure", "value"});
  for (const FittedFigure& f : fit.figures) figures.row({f.key, value_text(f)});
  figures.print(out);
  if (!fit.residuals.empty()) {
    out << "\nModelled against measured time\n";
    TextTable errors({true, false, false, false, true});
    errors.row({"of", "points", "median error", "worst", "at"});
    for (const ErrorSummary& e : summarise(fit.residuals))
      errors.row({e.family, fmt::format("{}", e.count), percent(e.median), percent(e.worst),
                  e.worst_what});
    errors.print(out);
  }
  if (!fit.collectives.empty()) {
    out << "\nEach collective by itself: seconds = latency + bus bytes / bus bandwidth\n";
    TextTable lines({true, false, false, false, false});
    lines.row({"collective", "points", "latency", "bus bandwidth", "worst error"});
    for (const AlphaBeta& c : fit.collectives)
      lines.row({c.what, fmt::format("{}", c.points), format_seconds(c.latency_seconds),
                 fmt::format("{:.2f} GB/s", c.bus_bytes_per_second / 1e9), percent(c.worst_error)});
    lines.print(out);
  }
  if (!fit.notes.empty()) out << "\n";
  for (const std::string& note : fit.notes) out << "note: " << note << "\n";
  return out.str();
}

Json::Value fit_json(const FitResult& fit, const ClusterProfile& base) {
  Json::Value json(Json::objectValue);
  json["schema"] = "moetwin-calibration/1";
  json["base"] = base.name;
  for (const char* list : {"residuals", "collectives", "notes"})
    json[list] = Json::Value(Json::arrayValue);
  json["figures"] = Json::Value(Json::objectValue);
  for (const FittedFigure& f : fit.figures) {
    json["figures"][f.key]["value"] = f.value;
    json["figures"][f.key]["source"] = f.source;
  }
  for (const Residual& r : fit.residuals) {
    Json::Value entry(Json::objectValue);
    entry["family"] = r.family;
    entry["what"] = r.what;
    entry["measured_seconds"] = r.measured_seconds;
    entry["modelled_seconds"] = r.modelled_seconds;
    entry["error"] = r.error();
    json["residuals"].append(entry);
  }
  for (const AlphaBeta& c : fit.collectives) {
    Json::Value entry(Json::objectValue);
    entry["what"] = c.what;
    entry["points"] = Json::Int64(c.points);
    entry["latency_seconds"] = c.latency_seconds;
    entry["bus_bytes_per_second"] = c.bus_bytes_per_second;
    entry["worst_error"] = c.worst_error;
    json["collectives"].append(entry);
  }
  for (const std::string& note : fit.notes) json["notes"].append(note);
  return json;
}

}  // namespace moetwin
