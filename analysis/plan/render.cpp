#include "analysis/plan/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/plan/front.h"
#include "core/base/units.h"
#include "core/record/json_text.h"

namespace moetwin {

namespace {

constexpr double kSecondsPerDay = 86400;

int64_t gpus(const PlanContext& context) { return context.scenario->distributed_config.world_size; }

double tokens(const PlanContext& context) {
  if (context.tokens > 0) return context.tokens;
  const TrainingConfig& t = context.scenario->training_config;
  return static_cast<double>(t.steps) * static_cast<double>(t.global_batch_size) *
         static_cast<double>(context.scenario->model_config.sequence_length);
}

std::string part_words(Part part) {
  std::string words = part_name(part);
  if (part == Part::all_to_all) return "all-to-all";
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string bytes(int64_t count) { return format_bytes(static_cast<double>(count)); }

std::string count_text(int64_t count) {
  std::string digits = std::to_string(count);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

/// Rows with columns to the right but the last.
std::string columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> width;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      width.resize(std::max(width.size(), i + 1));
      width[i] = std::max(width[i], row[i].size());
    }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i)
      text += i + 1 < row.size() ? fmt::format("  {:>{}}", row[i], width[i]) : "  " + row[i];
    text += "\n";
  }
  return text;
}

std::vector<std::string> header(bool confirmed, bool drops) {
  std::vector<std::string> row{"", "DP", "EP", "TP", "PP", "ETP", "step"};
  if (confirmed) row.emplace_back("simulated");
  row.insert(row.end(), {"tokens/s", "MFU", "peak memory"});
  if (drops) row.emplace_back("dropped");
  row.emplace_back("with");
  return row;
}

std::vector<std::string> row_of(size_t place, const PlanResult& r, bool confirmed, bool drops) {
  const PlanLayout& l = r.point.layout;
  std::vector<std::string> row{fmt::format("{}.", place),
                               std::to_string(l.edp),
                               std::to_string(l.ep),
                               std::to_string(l.tp),
                               std::to_string(l.pp),
                               std::to_string(l.etp),
                               format_seconds(r.figures.step_seconds)};
  if (confirmed)
    row.push_back(r.fluid_step_seconds > 0 ? format_seconds(r.fluid_step_seconds) : "-");
  row.push_back(format_count(r.figures.tokens_per_second));
  row.push_back(std::isnan(r.figures.mfu) ? "-" : fmt::format("{:.1f} %", 100 * r.figures.mfu));
  row.push_back(bytes(r.figures.peak_bytes));
  if (drops) row.push_back(fmt::format("{:.1f} %", 100 * r.figures.dropped_share));
  row.push_back(choices_text(r.point));
  return row;
}

std::string table_of(const std::vector<PlanResult>& results, size_t most) {
  const bool drops = std::any_of(results.begin(), results.end(),
                                 [](const PlanResult& r) { return r.figures.dropped_share > 0; });
  const bool confirmed = std::any_of(results.begin(), results.end(),
                                     [](const PlanResult& r) { return r.fluid_step_seconds > 0; });
  std::vector<std::vector<std::string>> rows{header(confirmed, drops)};
  for (size_t i = 0; i < std::min(most, results.size()); ++i)
    rows.push_back(row_of(i + 1, results[i], confirmed, drops));
  return columns(rows);
}

std::string searched_text(const PlanSearch& search) {
  std::string text = fmt::format("Searched {} combinations: {} estimated",
                                 count_text(search.combinations), count_text(search.estimated));
  if (search.refused > 0) {
    text += fmt::format("; {} break a rule", count_text(search.refused));
    const auto most =
        std::max_element(search.refused_by.begin(), search.refused_by.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != search.refused_by.end())
      text += fmt::format(" (most, {}, one about {})", count_text(most->second), most->first);
  }
  if (search.state_too_large + search.too_large > 0)
    text += fmt::format("; {} do not fit ({} by their training state alone)",
                        count_text(search.state_too_large + search.too_large),
                        count_text(search.state_too_large));
  if (search.slower_by_rule > 0)
    text += fmt::format("; {} left out, for the same fits without recompute or offload",
                        count_text(search.slower_by_rule));
  if (search.beaten > 0)
    text += fmt::format(
        "; {} left out of layouts that no other schedule or overlap can make good enough",
        count_text(search.beaten));
  if (search.dominated > 0)
    text += fmt::format(
        "; {} left out, for another is as fast with as little memory even if what they may hide "
        "took no time",
        count_text(search.dominated));
  return text + "\n";
}

/// The time that decides: of the simulation where there is one.
double seconds_of(const PlanResult& r) {
  return r.fluid_step_seconds > 0 ? r.fluid_step_seconds : r.figures.step_seconds;
}

std::string reason_text(const PlanContext& context, const PlanSearch& search) {
  const PlanResult& best = search.fitting.front();
  const auto other =
      std::find_if(search.fitting.begin() + 1, search.fitting.end(),
                   [&](const PlanResult& r) { return !(r.point.layout == best.point.layout); });
  if (other == search.fitting.end()) return "Why: no other layout fits.\n";
  const double apart = seconds_of(*other) / seconds_of(best) - 1;
  std::string text = fmt::format(
      "Why {}: the best of another layout, {} ({}), takes {:.1f} % longer. Against it: {}.\n",
      layout_text(best.point.layout), layout_text(other->point.layout), choices_text(other->point),
      100 * apart, difference_text(best.figures, other->figures));
  if (context.median_error > 0)
    text += fmt::format(
        "How sure: predicted step times were off by {:.1f} % in the median ({}). Were both off "
        "independently by that, the "
        "first is the faster one with {:.0f} % chance.\n",
        100 * context.median_error, context.error_source,
        100 * chance_faster(seconds_of(best), seconds_of(*other), context.median_error));
  return text;
}

std::string price_text(const PlanContext& context, const PlanResult& best) {
  const double count = tokens(context);
  const double hours = gpu_hours(count, best.figures.tokens_per_second, gpus(context));
  const ClusterConfig& cluster = context.scenario->cluster;
  std::string text =
      fmt::format("Price: {} tokens take {:.4g} days or {:.4g} GPU hours", format_count(count),
                  count / best.figures.tokens_per_second / kSecondsPerDay, hours);
  if (cluster.price_per_gpu_hour > 0)
    text += fmt::format(", {:.2f} {} at {} a GPU hour", hours * cluster.price_per_gpu_hour,
                        cluster.currency, cluster.price_per_gpu_hour);
  else
    text += " (give cluster.price_per_gpu_hour for money)";
  return text + "\n";
}

Json::Value result_json(const PlanContext& context, const PlanResult& r) {
  Json::Value json;
  for (const std::string& text : plan_overrides(*context.scenario, r.point))
    json["overrides"].append(text);
  const PlanFigures& f = r.figures;
  json["step_seconds"] = f.step_seconds;
  json["fluid_step_seconds"] =
      r.fluid_step_seconds > 0 ? Json::Value(r.fluid_step_seconds) : Json::Value();
  json["tokens_per_second"] = f.tokens_per_second;
  json["mfu"] = f.mfu;
  json["dropped_share"] = f.dropped_share;
  json["peak_bytes"] = Json::Int64(f.peak_bytes);
  for (int p = 0; p < kParts; ++p)
    json["parts_seconds"][part_name(static_cast<Part>(p))] =
        f.parts.seconds[static_cast<size_t>(p)];
  if (f.tokens_per_second > 0)
    json["gpu_hours"] = gpu_hours(tokens(context), f.tokens_per_second, gpus(context));
  return json;
}

}  // namespace

std::string layout_text(const PlanLayout& l) {
  return fmt::format("DP {} x EP {} x TP {} x PP {}", l.edp, l.ep, l.tp, l.pp) +
         (l.etp != l.tp ? fmt::format(" with ETP {}", l.etp) : "");
}

std::string choices_text(const PlanPoint& point) {
  std::string text = fmt::format("micro-batch {}", point.micro_batch);
  if (point.sharding != "NO_SHARD") text += ", " + point.sharding;
  if (point.layout.pp > 1) text += ", " + point.schedule;
  if (point.virtual_stages > 1) text += fmt::format(" x {}", point.virtual_stages);
  if (point.recompute != "none") text += ", recompute " + point.recompute;
  if (point.cpu_offload) text += ", offload";
  if (point.overlap) text += ", overlap";
  if (point.capacity_factor) text += fmt::format(", capacity {}", *point.capacity_factor);
  if (point.rebalancing != "none") text += ", " + point.rebalancing;
  return text;
}

std::string difference_text(const PlanFigures& best, const PlanFigures& other) {
  struct Piece {
    std::string words;
    double seconds;
  };
  std::vector<Piece> pieces;
  for (int p = 0; p < kParts; ++p)
    pieces.push_back(
        {part_words(static_cast<Part>(p)),
         best.parts.seconds[static_cast<size_t>(p)] - other.parts.seconds[static_cast<size_t>(p)]});
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::abs(a.seconds) > std::abs(b.seconds);
  });
  std::string text;
  for (const Piece& piece : pieces) {
    // What is below a hundredth of the step explains nothing.
    if (std::abs(piece.seconds) < 0.01 * best.step_seconds) break;
    text +=
        fmt::format("{}{} {} {}", text.empty() ? "" : ", ", format_seconds(std::abs(piece.seconds)),
                    piece.seconds < 0 ? "less" : "more", piece.words);
  }
  return text.empty() ? "every part about the same" : text;
}

std::string plan_text(const PlanContext& context, const PlanSearch& search) {
  const TrainingConfig& t = context.scenario->training_config;
  const int64_t cp = context.scenario->distributed_config.context_parallel_size;
  std::string text =
      fmt::format("Plan for {}: {}; {} sequences of {} tokens a step{}\n{}\n",
                  context.scenario->name, context.cluster, count_text(t.global_batch_size),
                  count_text(context.scenario->model_config.sequence_length),
                  cp > 1 ? fmt::format(", each over {} ranks (CP, which DP x EP counts)", cp) : "",
                  searched_text(search));
  text += table_of(search.fitting, context.shown);
  text += "\n" + reason_text(context, search);
  const std::vector<PlanResult> front = pareto_front(search.fitting, context.machine.ample_bytes());
  if (front.size() > 1)
    text += fmt::format(
                "\nNone beats these in throughput, memory{} at once (less than {}, a quarter "
                "of a GPU's, counts as equal)\n",
                front.front().figures.dropped_share > 0 ? " and dropped tokens" : "",
                bytes(context.machine.ample_bytes())) +
            table_of(front, 12);
  return text + "\n" + price_text(context, search.fitting.front());
}

std::string nothing_fits_text(const PlanContext& context, const PlanSearch& search) {
  std::string text = fmt::format("Plan for {}: {}\n{}\nNothing fits", context.scenario->name,
                                 context.cluster, searched_text(search));
  if (!search.closest) return text + ".\n";
  const PlanResult& c = *search.closest;
  text +=
      fmt::format(". Closest: {} ({}) needs {} a GPU{}, which has {}: {} too much.\n",
                  layout_text(c.point.layout), choices_text(c.point), bytes(c.figures.peak_bytes),
                  c.figures.step_seconds > 0 ? "" : " for weights, gradients and optimizer alone",
                  bytes(context.machine.memory_bytes),
                  bytes(c.figures.peak_bytes - context.machine.memory_bytes));
  return text;
}

Json::Value plan_json(const PlanContext& context, const PlanSearch& search) {
  Json::Value json;
  json["schema"] = "moetwin-plan/1";
  json["scenario"] = context.scenario->name;
  json["gpus"] = Json::Int64(gpus(context));
  json["memory_bytes"] = Json::Int64(context.machine.memory_bytes);
  json["tokens"] = tokens(context);
  Json::Value& searched = json["searched"];
  searched["combinations"] = Json::Int64(search.combinations);
  searched["estimated"] = Json::Int64(search.estimated);
  searched["refused"] = Json::Int64(search.refused);
  searched["refused_by"] = Json::Value(Json::objectValue);
  for (const auto& [key, count] : search.refused_by)
    searched["refused_by"][key] = Json::Int64(count);
  searched["state_too_large"] = Json::Int64(search.state_too_large);
  searched["too_large"] = Json::Int64(search.too_large);
  searched["beaten"] = Json::Int64(search.beaten);
  searched["dominated"] = Json::Int64(search.dominated);
  searched["slower_by_rule"] = Json::Int64(search.slower_by_rule);
  json["ranking"] = Json::Value(Json::arrayValue);
  for (size_t i = 0; i < std::min(context.shown, search.fitting.size()); ++i)
    json["ranking"].append(result_json(context, search.fitting[i]));
  json["pareto_front"] = Json::Value(Json::arrayValue);
  for (const PlanResult& r : pareto_front(search.fitting, context.machine.ample_bytes()))
    json["pareto_front"].append(result_json(context, r));
  json["closest"] = search.closest ? result_json(context, *search.closest) : Json::Value();
  json["median_error"] =
      context.median_error > 0 ? Json::Value(context.median_error) : Json::Value();
  return json;
}

std::string winner_text(const PlanContext& context, const PlanResult& winner,
                        const std::string& extends) {
  Json::Value root(Json::objectValue);
  root["extends"] = extends;
  root["distributed_config"]["world_size"] = Json::Int64(gpus(context));
  root["training_config"]["global_batch_size"] =
      Json::Int64(context.scenario->training_config.global_batch_size);
  for (const std::string& text : plan_overrides(*context.scenario, winner.point)) {
    const size_t equals = text.find('=');
    Json::Value* at = &root;
    std::string key = text.substr(0, equals);
    for (size_t dot; (dot = key.find('.')) != key.npos; key = key.substr(dot + 1))
      at = &(*at)[key.substr(0, dot)];
    const std::string value = text.substr(equals + 1);
    Json::Value& place = (*at)[key];
    if (value == "true" || value == "false")
      place = value == "true";
    else if (value == "null")
      place = Json::Value();
    else if (value.find_first_not_of("0123456789") == value.npos)
      place = Json::Int64(std::stoll(value));
    else if (value.find_first_not_of("0123456789.e+-") == value.npos)
      place = std::stod(value);
    else
      place = value;
  }
  return fmt::format(
             "// What `moetwin plan` found best for {} on {}: {} ({}).\n// Predicted: a step of "
             "{}, "
             "{} tokens/s, peak memory {}.\n",
             context.scenario->name, context.cluster, layout_text(winner.point.layout),
             choices_text(winner.point), format_seconds(winner.figures.step_seconds),
             format_count(winner.figures.tokens_per_second), bytes(winner.figures.peak_bytes)) +
         json_text(root);
}

}  // namespace moetwin
