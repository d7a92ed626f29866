#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "analysis/result/csv_table.h"
#include "analysis/result/lines.h"
#include "analysis/result/routing_series.h"
#include "core/base/error.h"

namespace moetwin {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// One layer in one step while reading.
struct Block {
  std::vector<double> all, kept;                      // [E]; empty: no such rows
  std::map<int64_t, std::vector<double>> ranks;       // assigned by source rank
  std::map<int64_t, std::vector<double>> ranks_kept;  // only used where `all` is absent
};

void put(std::vector<double>& row, int64_t expert, double value) {
  if (static_cast<int64_t>(row.size()) <= expert) row.resize(static_cast<size_t>(expert) + 1);
  row[static_cast<size_t>(expert)] += value;
}

double sum(const std::vector<double>& row) {
  double total = 0;
  for (double v : row) total += v;
  return total;
}

/// Moves a finished step and layer into its series.
void append(LayerSeries& layer, int64_t step, Block& block, const std::string& path) {
  if (block.all.empty())
    for (const auto& [rank, row] : block.ranks) {
      for (size_t e = 0; e < row.size(); ++e) put(block.all, static_cast<int64_t>(e), row[e]);
      const std::vector<double>& kept = block.ranks_kept[rank];
      for (size_t e = 0; e < kept.size(); ++e) put(block.kept, static_cast<int64_t>(e), kept[e]);
    }
  if (layer.experts == 0) layer.experts = static_cast<int64_t>(block.all.size());
  if (static_cast<int64_t>(block.all.size()) != layer.experts)
    throw Error(ErrorClass::configuration,
                fmt::format("{}: step {}, layer {}: has {} experts, the steps before {}", path,
                            step, layer.layer, block.all.size(), layer.experts));
  if (!layer.steps.empty() && step <= layer.steps.back())
    throw Error(ErrorClass::configuration,
                fmt::format("{}: layer {}: step {} comes after step {}", path, layer.layer, step,
                            layer.steps.back()));
  layer.steps.push_back(step);
  layer.load.insert(layer.load.end(), block.all.begin(), block.all.end());
  layer.kept.push_back(block.kept.empty() ? kUnknown : sum(block.kept));
  if (block.ranks.empty()) return;
  layer.sources = {step, {}, {}};
  for (auto& [rank, row] : block.ranks) {
    row.resize(static_cast<size_t>(layer.experts));
    layer.sources.ranks.push_back(rank);
    layer.sources.assigned.insert(layer.sources.assigned.end(), row.begin(), row.end());
  }
}

}  // namespace

RoutingSeries read_routing_csv(const std::string& path) {
  const MappedFile file(path);
  std::map<int64_t, LayerSeries> layers;
  std::map<int64_t, Block> blocks;  // by layer, of the step being read
  int64_t reading = -1;
  const auto finish_step = [&] {
    for (auto& [number, block] : blocks) {
      layers[number].layer = number;
      append(layers[number], reading, block, path);
    }
    blocks.clear();
  };
  for_each_line(file, [&](std::string_view line, int64_t number) {
    constexpr std::string_view kHeader = "step,layer,rank,expert,assigned";
    if (number == 1) {
      if (!line.starts_with(kHeader))
        throw Error(ErrorClass::configuration,
                    fmt::format("{}:1: the header must begin with \"{}\"", path, kHeader));
      return;
    }
    std::string_view rest = line;
    int64_t step = -1, layer = -1, rank = -1, expert = -1, assigned = -1, kept = -1;
    const bool fine = read_number(next_field(rest), step) && read_number(next_field(rest), layer);
    const std::string_view rank_text = next_field(rest);
    const bool all = rank_text == "all";
    if (!fine || (!all && !read_number(rank_text, rank)) ||
        !read_number(next_field(rest), expert) || !read_number(next_field(rest), assigned) ||
        expert < 0 || expert >= 1 << 20 || assigned < 0)
      throw Error(ErrorClass::configuration,
                  fmt::format("{}:{}: needs whole numbers from 0 (rank may be all): \"{}\"", path,
                              number, line));
    const bool has_kept = read_number(next_field(rest), kept);
    if (step != reading) finish_step(), reading = step;
    Block& block = blocks[layer];
    put(all ? block.all : block.ranks[rank], expert, static_cast<double>(assigned));
    if (has_kept) put(all ? block.kept : block.ranks_kept[rank], expert, static_cast<double>(kept));
  });
  finish_step();
  RoutingSeries series;
  series.origin = path;
  for (auto& [number, layer] : layers) series.layers.push_back(std::move(layer));
  return series;
}

void read_probe_csv(const std::string& path, RoutingSeries& series) {
  const CsvTable table(path);
  std::vector<const std::vector<double>*> shares, biases;
  while (table.has(fmt::format("share_{}", shares.size())))
    shares.push_back(&table.column(fmt::format("share_{}", shares.size())));
  while (table.has(fmt::format("bias_{}", biases.size())))
    biases.push_back(&table.column(fmt::format("bias_{}", biases.size())));
  if (shares.empty() || (!biases.empty() && biases.size() != shares.size()))
    throw Error(ErrorClass::configuration,
                fmt::format("{}: needs columns share_0 to share_(E-1) and as many or no bias_*; it "
                            "has {} and {}",
                            path, shares.size(), biases.size()));
  const std::vector<double>&step = table.column("step"), &number = table.column("layer");
  const std::vector<double> churn = table.column_or_nan("churn"),
                            entropy = table.column_or_nan("router_entropy"),
                            scale = table.column_or_nan("logit_std"),
                            harm = table.column_or_nan("harm");
  for (size_t i = 0; i < table.rows(); ++i) {
    const auto layer_number = static_cast<int64_t>(number[i]);
    auto layer = std::find_if(series.layers.begin(), series.layers.end(),
                              [&](const LayerSeries& l) { return l.layer == layer_number; });
    if (layer == series.layers.end()) {
      LayerSeries added;
      added.layer = layer_number;
      layer = series.layers.insert(
          std::find_if(series.layers.begin(), series.layers.end(),
                       [&](const LayerSeries& l) { return l.layer > layer_number; }),
          added);
    }
    if (layer->experts == 0) layer->experts = static_cast<int64_t>(shares.size());
    if (layer->experts > static_cast<int64_t>(shares.size()))
      throw Error(ErrorClass::configuration,
                  fmt::format("{}: layer {}: {} shares, but {} experts in {}", path, layer_number,
                              shares.size(), layer->experts, series.origin));
    ProbeSeries& probe = layer->probe;
    probe.steps.push_back(static_cast<int64_t>(step[i]));
    probe.churn.push_back(churn[i]);
    probe.router_entropy.push_back(entropy[i]);
    probe.logit_std.push_back(scale[i]);
    probe.harm.push_back(harm[i]);
    for (int64_t e = 0; e < layer->experts; ++e) {
      probe.share.push_back((*shares[static_cast<size_t>(e)])[i]);
      if (!biases.empty()) probe.bias.push_back((*biases[static_cast<size_t>(e)])[i]);
    }
  }
}

}  // namespace moetwin
