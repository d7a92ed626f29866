#include <fmt/format.h>
#include <json/reader.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>

#include "analysis/result/lines.h"
#include "analysis/result/routing_series.h"
#include "core/base/error.h"

namespace moetwin {

namespace {

using Counts = std::vector<double>;
/// [step][layer][rank]
using Read = std::map<int64_t, std::map<int64_t, std::map<int64_t, Counts>>>;

[[noreturn]] void refuse(const std::string& file, int64_t line, const std::string& why) {
  throw Error(ErrorClass::configuration, fmt::format("{}:{}: {}", file, line, why));
}

int64_t rank_of_file_name(const std::string& path) {
  const std::string name = std::filesystem::path(path).stem().string();
  const size_t at = name.rfind("rank");
  int64_t rank = -1;
  if (at == name.npos || !read_number(std::string_view(name).substr(at + 4), rank) || rank < 0)
    refuse(path, 1, "the file's name must end in rank<number>, as Megatron names it");
  return rank;
}

struct Reader {
  Read indices, local;
  int64_t seen = 0;  ///< largest expert number + 1

  void add(Counts& counts, int64_t expert, double n) {
    if (static_cast<int64_t>(counts.size()) <= expert)
      counts.resize(static_cast<size_t>(expert) + 1);
    counts[static_cast<size_t>(expert)] += n;
    seen = std::max(seen, expert + 1);
  }

  void record(const Json::Value& r, const std::string& path, int64_t line) {
    if (r.isMember("block") && r["block"].asString() != "decoder") return;
    const bool is_local = r.isMember("tpe");
    const char* step_key = is_local ? "iter" : "step";
    if (!r["layer"].isInt64() || !r[step_key].isInt64() ||
        (!is_local && (!r["top_indices"].isArray() || !r["rank"].isInt64())))
      refuse(path, line,
             "needs step, layer, rank and top_indices (router trace), or iter, layer and tpe "
             "(tokens per expert)");
    auto& by_rank = (is_local ? local : indices)[r[step_key].asInt64()][r["layer"].asInt64()];
    Counts& counts = by_rank[is_local ? rank_of_file_name(path) : r["rank"].asInt64()];
    for (const Json::Value& row : r[is_local ? "tpe" : "top_indices"])
      for (Json::ArrayIndex i = 0; i < row.size(); ++i) {
        const int64_t value = row[i].isInt64() ? row[i].asInt64() : -1;
        if (value < 0 || (!is_local && value >= 1 << 20))
          refuse(path, line, "an expert or count is no whole number from 0");
        is_local ? add(counts, i, static_cast<double>(value)) : add(counts, value, 1);
      }
  }
};

}  // namespace

RoutingSeries read_megatron_routing(const std::vector<std::string>& files, int64_t experts) {
  Reader read;
  const Json::CharReaderBuilder builder;
  const std::unique_ptr<Json::CharReader> parser(builder.newCharReader());
  for (const std::string& path : files) {
    const MappedFile file(path);
    for_each_line(file, [&](std::string_view line, int64_t number) {
      Json::Value value;
      std::string fault;
      if (!parser->parse(line.data(), line.data() + line.size(), &value, &fault) ||
          !value.isObject())
        refuse(path, number, "is not a JSON object: " + fault);
      read.record(value, path, number);
    });
  }
  if (!read.indices.empty() && !read.local.empty())
    refuse(files.front(), 1, "router traces and tokens per expert cannot be read together");
  const bool local = read.indices.empty();
  const Read& all = local ? read.local : read.indices;
  if (all.empty()) refuse(files.empty() ? "(no file)" : files.front(), 1, "holds no counts");
  if (experts == 0) experts = local ? read.seen * static_cast<int64_t>(files.size()) : read.seen;
  if (experts < read.seen || (local && experts % read.seen != 0))
    refuse(files.front(), 1,
           fmt::format("is of {} experts{}, which does not fit {} in all", read.seen,
                       local ? " a rank" : "", experts));
  RoutingSeries series;
  series.origin = fmt::format("{} and {} more", files.front(), files.size() - 1);
  std::map<int64_t, LayerSeries> layers;
  for (const auto& [step, step_layers] : all)
    for (const auto& [number, ranks] : step_layers) {
      LayerSeries& layer = layers[number];
      layer.layer = number;
      layer.experts = experts;
      Counts total(static_cast<size_t>(experts));
      layer.sources = {step, {}, {}};
      for (const auto& [rank, counts] : ranks) {
        const int64_t first = local ? rank % (experts / read.seen) * read.seen : 0;
        Counts row(static_cast<size_t>(experts));
        for (size_t e = 0; e < counts.size(); ++e) row[static_cast<size_t>(first) + e] = counts[e];
        for (size_t e = 0; e < row.size(); ++e) total[e] += row[e];
        if (local) continue;  // who sent them is unknown
        layer.sources.ranks.push_back(rank);
        layer.sources.assigned.insert(layer.sources.assigned.end(), row.begin(), row.end());
      }
      layer.steps.push_back(step);
      layer.load.insert(layer.load.end(), total.begin(), total.end());
      layer.kept.push_back(std::numeric_limits<double>::quiet_NaN());
    }
  for (auto& [number, layer] : layers) series.layers.push_back(std::move(layer));
  return series;
}

}  // namespace moetwin
