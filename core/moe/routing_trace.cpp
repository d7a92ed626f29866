#include "core/moe/routing_trace.h"

#include <fmt/format.h>
#include <json/reader.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/scenario/stages.h"

namespace moetwin {

namespace {

constexpr int64_t kMostExperts = 1 << 20;  // beyond: no count of experts but a broken file

[[noreturn]] void refuse(const std::string& file, int64_t line, const std::string& why) {
  throw Error(ErrorClass::configuration, fmt::format("routing trace {}:{}: {}", file, line, why));
}

/// Lines of a mapped file without their ends, numbered from 1.
template <class Body>
void for_each_line(const MappedFile& file, Body&& body) {
  std::string_view rest(reinterpret_cast<const char*>(file.data()),
                        static_cast<size_t>(file.size()));
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!line.empty()) body(line, number);
  }
}

int64_t rank_of_file_name(const std::string& path) {
  const std::string name = std::filesystem::path(path).stem().string();
  const size_t at = name.rfind("rank");
  int64_t rank = -1;
  if (at != name.npos) std::from_chars(name.data() + at + 4, name.data() + name.size(), rank);
  if (rank < 0) refuse(path, 1, "the file's name must end in rank<number>, as Megatron names it");
  return rank;
}

}  // namespace

RoutingTrace::RoutingTrace(const std::vector<std::string>& files, int64_t experts)
    : experts_(experts) {
  require(!files.empty(), "a trace has files");
  name_ = files.front();
  for (const std::string& file : files)
    file.ends_with(".csv") ? read_csv(file) : read_json_lines(file);
  if (steps_read_.empty()) refuse(name_, 1, "holds no counts");
  // Indices only show experts that got a token; every other kind names all of them.
  const bool fits = kind_ == Kind::csv             ? seen_ == experts
                    : kind_ == Kind::local_experts ? seen_ > 0 && experts % seen_ == 0
                                                   : seen_ <= experts;
  if (!fits)
    throw Error(ErrorClass::configuration,
                fmt::format("routing.trace_file {}: is of {} experts{}, but "
                            "moe_layer_config.num_experts is {}",
                            name_, seen_, kind_ == Kind::local_experts ? " a rank" : "", experts));
  for (auto& [step, layers] : steps_read_) {
    for (auto& [number, layer] : layers) finish(layer);
    steps_.push_back(std::move(layers));
  }
  steps_read_.clear();
}

void RoutingTrace::finish(Layer& layer) {
  const bool summed = !layer.all.empty();
  layer.all.resize(static_cast<size_t>(experts_));
  for (auto& [rank, counts] : layer.by_rank) {
    const auto held = static_cast<int64_t>(counts.size());
    const bool local = kind_ == Kind::local_experts;
    const int64_t first = local && held > 0 ? rank % (experts_ / held) * held : 0;
    for (int64_t e = 0; e < held && !summed; ++e)
      layer.all[static_cast<size_t>(first + e)] += counts[static_cast<size_t>(e)];
    counts.resize(static_cast<size_t>(experts_));
    if (!local) layer.sources.push_back(std::move(counts));
  }
  layer.by_rank.clear();
}

void RoutingTrace::add(std::vector<int64_t>& counts, int64_t expert, int64_t count) {
  if (static_cast<int64_t>(counts.size()) <= expert) counts.resize(static_cast<size_t>(expert) + 1);
  counts[static_cast<size_t>(expert)] += count;
  seen_ = std::max(seen_, expert + 1);
}

void RoutingTrace::read_csv(const std::string& path) {
  const MappedFile file(path);
  constexpr std::string_view kHeader = "step,layer,rank,expert,assigned";
  for_each_line(file, [&](std::string_view line, int64_t number) {
    if (number == 1) {
      if (line.substr(0, kHeader.size()) != kHeader)
        refuse(path, 1, fmt::format("the header must begin with \"{}\"", kHeader));
      return;
    }
    int64_t field[5] = {};
    const char *at = line.data(), *end = at + line.size();
    for (int i = 0; i < 5; ++i) {
      const bool all =
          i == 2 && std::string_view(at, static_cast<size_t>(end - at)).starts_with("all");
      const auto [next, fault] = std::from_chars(at, end, field[i]);
      if (all) field[i] = -1;
      at = all ? at + 3 : next;
      if ((!all && (fault != std::errc() || field[i] < 0)) || (i < 4 && (at == end || *at != ',')))
        refuse(path, number,
               fmt::format("field {} is not a whole number from 0 (rank may be all): \"{}\"", i + 1,
                           line));
      ++at;
    }
    if (field[3] >= kMostExperts) refuse(path, number, fmt::format("expert {}", field[3]));
    Layer& layer = steps_read_[field[0]][field[1]];
    add(field[2] < 0 ? layer.all : layer.by_rank[field[2]], field[3], field[4]);
  });
}

void RoutingTrace::read_json_lines(const std::string& path) {
  const MappedFile file(path);
  const Json::CharReaderBuilder builder;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  for_each_line(file, [&](std::string_view line, int64_t number) {
    Json::Value record;
    std::string fault;
    if (!reader->parse(line.data(), line.data() + line.size(), &record, &fault) ||
        !record.isObject())
      refuse(path, number, "is not a JSON object: " + fault);
    if (record.isMember("block") && record["block"].asString() != "decoder") return;
    const bool local = record.isMember("tpe");
    if (!record["layer"].isInt() || !record[local ? "iter" : "step"].isInt() ||
        (!local && (!record["top_indices"].isArray() || !record["rank"].isInt())))
      refuse(path, number,
             "needs step, layer, rank and top_indices (router trace), or iter, layer and tpe "
             "(tokens per expert)");
    kind_ = local ? Kind::local_experts : Kind::indices;
    Layer& layer =
        steps_read_[record[local ? "iter" : "step"].asInt64()][record["layer"].asInt64()];
    std::vector<int64_t>& counts =
        layer.by_rank[local ? rank_of_file_name(path) : record["rank"].asInt64()];
    for (const Json::Value& row : record[local ? "tpe" : "top_indices"])
      for (Json::ArrayIndex i = 0; i < row.size(); ++i) {
        if (!row[i].isInt64() || row[i].asInt64() < 0 ||
            (!local && row[i].asInt64() >= kMostExperts))
          refuse(path, number, fmt::format("\"{}\" is no expert or count", row[i].asString()));
        local ? add(counts, i, row[i].asInt64()) : add(counts, row[i].asInt64(), 1);
      }
  });
}

std::vector<double> RoutingTrace::shares(int64_t step, int64_t layer, int64_t source,
                                         int64_t sources) const {
  const Layers& layers = steps_[static_cast<size_t>((first_ + step - 1) % steps())];
  const auto found = layers.find(layer);
  if (found == layers.end()) {
    std::vector<int64_t> known;
    for (const auto& entry : layers) known.push_back(entry.first);
    throw Error(ErrorClass::configuration,
                fmt::format("routing.trace_file {}: has no layer {} in its step number {}; it has "
                            "{}",
                            name_, layer, (first_ + step - 1) % steps(), fmt::join(known, ", ")));
  }
  const Layer& at = found->second;
  const bool own = static_cast<int64_t>(at.sources.size()) == sources;
  const std::vector<int64_t>& counts = own ? at.sources[static_cast<size_t>(source)] : at.all;
  return {counts.begin(), counts.end()};
}

void RoutingTrace::resample(const std::vector<int64_t>& layers) {
  std::vector<int64_t> recorded;
  for (const auto& entry : steps_.front()) recorded.push_back(entry.first);
  for (const int64_t number : recorded) {
    std::vector<const RecordedStep*> steps;
    for (const Layers& at : steps_) {
      const auto found = at.find(number);
      if (found == at.end())
        throw Error(
            ErrorClass::configuration,
            fmt::format("routing.scenario {}: layer {} is not in every step", name_, number));
      steps.push_back(&found->second);
    }
    Wanted wanted;
    wanted.dispersion = dispersion(steps);
    wanted.shares = wanted_shares(steps, wanted.dispersion);
    wanted_.push_back(std::move(wanted));
  }
  const auto count = static_cast<int64_t>(layers.size());
  for (int64_t i = 0; i < count; ++i)
    wanted_of_[layers[static_cast<size_t>(i)]] =
        static_cast<size_t>(layer_at_depth(i, count, static_cast<int64_t>(recorded.size())));
}

std::vector<double> RoutingTrace::shares(int64_t step, int64_t layer, int64_t source,
                                         int64_t sources, int64_t assignments,
                                         uint64_t seed) const {
  const auto found = wanted_of_.find(layer);
  if (found == wanted_of_.end()) return shares(step, layer, source, sources);
  const Wanted& wanted = wanted_[found->second];
  const PhiloxKey key = philox_key(seed, Purpose::workload, static_cast<uint32_t>(layer),
                                   static_cast<uint32_t>(step));
  return sampled_shares(wanted.shares[static_cast<size_t>((first_ + step - 1) % steps())],
                        wanted.dispersion, assignments, key,
                        static_cast<uint64_t>(source * experts_));
}

std::shared_ptr<const RoutingTrace> load_trace(const Scenario& scenario) {
  const RoutingConfig& routing = scenario.routing;
  const std::string source =
      routing.source == "learned" && scenario.training_config.numerics == "none"
          ? routing.without_numerics
          : routing.source;
  const bool proxy = source == "proxy";
  if (source != "trace" && source != "W10" && !proxy) return nullptr;
  const std::string directory = std::filesystem::path(scenario.path).parent_path().string();
  const std::string key = proxy ? "routing.scenario" : "routing.trace_file";
  std::string file = proxy ? routing.scenario : routing.trace_file;
  // A run directory stands for the record in it.
  if (std::filesystem::is_directory(std::filesystem::path(directory) / file))
    file += "/routing.csv";
  if (file.ends_with(".json"))
    throw Error(ErrorClass::configuration,
                fmt::format("{} {}: is a scenario, not the record of its run", key, file));
  const auto trace = std::make_shared<RoutingTrace>(
      expand_files({file}, directory, key), scenario.model_config.moe_layer_config.num_experts);
  trace->begin_at(routing.first_step);
  if (proxy)
    trace->resample(moe_layers(scenario.model_config, {{0, scenario.model_config.num_layers}}));
  return trace;
}

}  // namespace moetwin
