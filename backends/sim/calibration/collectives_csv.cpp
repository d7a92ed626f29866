#include "backends/sim/calibration/collectives_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <sstream>

#include "core/base/csv.h"
#include "core/base/error.h"
#include "core/base/units.h"

namespace moetwin {
namespace {

std::optional<double> number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<CollectiveKind> kind_named(const std::string& name) {
  const std::pair<const char*, CollectiveKind> kinds[] = {
      {"all_reduce", CollectiveKind::all_reduce},
      {"all_gather", CollectiveKind::all_gather},
      {"reduce_scatter", CollectiveKind::reduce_scatter},
      {"alltoall", CollectiveKind::all_to_all_v},
      {"broadcast", CollectiveKind::broadcast},
      {"sendrecv", CollectiveKind::send},
      {"p2p", CollectiveKind::send}};
  for (const auto& [text, kind] : kinds)
    if (name == text) return kind;
  return std::nullopt;
}

class Table {
 public:
  Table(std::vector<std::string> header, const std::string& file) : names_(std::move(header)) {
    for (const char* needed : {"collective", "nodes", "gpus_per_node", "size_bytes"})
      if (!has(needed))
        throw Error(ErrorClass::configuration,
                    fmt::format("{}:1: there is no column \"{}\"; needed: collective, nodes, "
                                "gpus_per_node, size_bytes, and time_us or busbw_GBps",
                                file, needed));
  }
  bool has(const char* name) const {
    return std::find(names_.begin(), names_.end(), name) != names_.end();
  }
  std::string text(const std::vector<std::string>& fields, const char* name) const {
    const auto at =
        static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
    return at < names_.size() && at < fields.size() ? fields[at] : "";
  }
  std::optional<double> positive(const std::vector<std::string>& fields, const char* name) const {
    const std::optional<double> value = number(text(fields, name));
    return value && *value > 0 ? value : std::nullopt;
  }

 private:
  std::vector<std::string> names_;
};

/// Group of `nodes` x `per_node` members, the first of each node; of a ring of sends its one edge
/// that leaves a node, or any.
Group group_of(int64_t nodes, int64_t per_node, int64_t profile_gpus_per_node) {
  Group group;
  group.n0 = nodes, group.stride0 = profile_gpus_per_node;
  group.n1 = per_node, group.stride1 = 1;
  return group;
}

}  // namespace

std::map<std::string, std::string> nccl_variables(const std::string& env_algo) {
  std::map<std::string, std::string> variables;
  std::istringstream words(env_algo);
  bool first = true;
  for (std::string word; words >> word; first = false) {
    const size_t equals = word.find('=');
    if (word.rfind("NCCL_", 0) == 0 && equals != std::string::npos)
      variables[word.substr(0, equals)] = word.substr(equals + 1);
    std::string name = word;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (first && (name == "ring" || name == "tree" || name == "nvls" || name == "nvlstree"))
      variables["NCCL_ALGO"] = word;
  }
  return variables;
}

std::vector<CollectiveMeasurement> read_collectives_csv(
    const std::string& text, const std::string& file, const std::string& gpu,
    const std::vector<std::string>& series, double least_bytes, double most_bytes,
    int64_t profile_gpus_per_node, std::vector<std::string>& problems) {
  const std::vector<CsvRecord> records = csv_records(text);
  const Table table(records.empty() ? std::vector<std::string>() : records[0].fields, file);
  std::vector<CollectiveMeasurement> list;
  for (size_t i = 1; i < records.size(); ++i) {
    const std::vector<std::string>& fields = records[i].fields;
    const int64_t at = records[i].line;
    const std::string curve = table.text(fields, "series");
    const auto begins = [&](const std::string& s) { return curve.rfind(s, 0) == 0; };
    if (table.text(fields, "gpu").find(gpu) == std::string::npos) continue;
    if (!series.empty() && std::none_of(series.begin(), series.end(), begins)) continue;
    const std::optional<CollectiveKind> kind = kind_named(table.text(fields, "collective"));
    if (!kind) continue;
    const auto nodes = table.positive(fields, "nodes");
    const auto per_node = table.positive(fields, "gpus_per_node");
    const auto bytes = table.positive(fields, "size_bytes");
    auto seconds = table.positive(fields, "time_us");
    if (seconds) *seconds *= 1e-6;
    const auto problem = [&](const char* what) {
      problems.push_back(fmt::format("{}:{}: {}", file, at, what));
    };
    if (!nodes || !per_node || !bytes || *nodes * *per_node < 2) {
      problem("has no nodes, gpus_per_node or size_bytes, or is of one GPU: left out");
      continue;
    }
    if (*per_node > static_cast<double>(profile_gpus_per_node)) {
      problem("has more GPUs on a node than the base profile: left out");
      continue;
    }
    CollectiveMeasurement m;
    m.kind = *kind;
    const auto node_count = static_cast<int64_t>(*nodes), here = static_cast<int64_t>(*per_node);
    m.group = group_of(node_count, here, profile_gpus_per_node);
    const int64_t ranks = m.group.size();
    if (const auto rate = table.positive(fields, "busbw_GBps"); !seconds && rate)
      seconds = *bytes * bus_factor(m.kind, ranks) / (*rate * 1e9);
    if (!seconds) {
      problem("has neither time_us nor busbw_GBps: left out");
      continue;
    }
    if (*bytes < least_bytes || *bytes > most_bytes) continue;
    m.bytes = *bytes;
    m.seconds = *seconds;
    m.series = curve;
    m.nccl = nccl_variables(table.text(fields, "env_algo"));
    m.what = fmt::format("{}, {}:{}", format_bytes(m.bytes), file, at);
    if (m.kind == CollectiveKind::all_to_all_v)
      m.pair_bytes.assign(static_cast<size_t>(ranks * ranks), m.bytes / static_cast<double>(ranks));
    list.push_back(std::move(m));
  }
  if (list.empty())
    throw Error(ErrorClass::configuration,
                fmt::format("{}: no row is left to fit{}{}", file, problems.empty() ? "" : "; ",
                            problems.empty() ? "" : problems.front()));
  return list;
}

}  // namespace moetwin
