#include "backends/sim/calibration/nccl_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <regex>
#include <sstream>

#include "core/base/error.h"
#include "core/base/units.h"

namespace moetwin {
namespace {

struct Name {
  const char* text;
  CollectiveKind kind;
};
// Spellings in logs and file names; nccl-tests' all-to-all is an all-to-all-v of equal parts.
constexpr Name kNames[] = {
    {"all_reduce", CollectiveKind::all_reduce},
    {"allreduce", CollectiveKind::all_reduce},
    {"all_gather", CollectiveKind::all_gather},
    {"allgather", CollectiveKind::all_gather},
    {"reduce_scatter", CollectiveKind::reduce_scatter},
    {"reducescatter", CollectiveKind::reduce_scatter},
    {"alltoall", CollectiveKind::all_to_all_v},
    {"all_to_all", CollectiveKind::all_to_all_v},
    {"broadcast", CollectiveKind::broadcast},
};

std::optional<CollectiveKind> kind_in(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(c == '-' ? '_' : std::tolower(c));
  });
  for (const Name& name : kNames)
    if (text.find(name.text) != std::string::npos) return name.kind;
  return std::nullopt;
}

std::optional<double> number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "[1,0]<stdout>:" of mpirun --tag-output, "3: " of srun --label.
std::string without_prefix(const std::string& line) {
  static const std::regex prefix(R"(^(\[\d+,\d+\]<std\w+>:|\s*\d+:\s))");
  return std::regex_replace(line, prefix, "", std::regex_constants::format_first_only);
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

struct Row {
  double bytes = 0, seconds = 0, in_place_seconds = -1, bus_rate = 0;
  double wrong = 0;  ///< of the columns "#wrong"; 0 where they say N/A
};

/// time algbw busbw #wrong from `at` on.
bool read_columns(const std::vector<std::string>& words, size_t at, double& seconds, double& bus,
                  double& wrong) {
  if (words.size() < at + 4) return false;
  const auto time = number(words[at]), rate = number(words[at + 2]);
  if (!time || !number(words[at + 1]) || !rate) return false;
  seconds = *time * 1e-6;
  bus = *rate * 1e9;
  // The fourth is a count of wrong elements, an error bound (old versions) or N/A.
  const auto count = number(words[at + 3]);
  if (count && *count >= 1) wrong += *count;
  return true;
}

// size count type redop [root] time algbw busbw #wrong [time algbw busbw #wrong]
std::optional<Row> row_of(const std::vector<std::string>& words) {
  Row row;
  if (words.size() < 8) return std::nullopt;
  const auto bytes = number(words[0]);
  if (!bytes || *bytes < 0 || !number(words[1]) || number(words[2])) return std::nullopt;
  row.bytes = *bytes;
  size_t at = 3;
  if (!number(words[at])) ++at;            // redop, "none" in newer versions
  if ((words.size() - at) % 4 == 1) ++at;  // root
  if (words.size() - at != 4 && words.size() - at != 8) return std::nullopt;
  if (!read_columns(words, at, row.seconds, row.bus_rate, row.wrong)) return std::nullopt;
  double rate = 0;
  if (words.size() - at == 8 && !read_columns(words, at + 4, row.in_place_seconds, rate, row.wrong))
    row.in_place_seconds = -1;
  return row;
}

class Reader {
 public:
  Reader(const std::string& name, const NcclTestsOptions& options)
      : options_(options), file_(name) {
    const size_t equals = name.find('=');
    if (equals != std::string::npos) {
      kind_ = kind_in(name.substr(0, equals));
      if (!kind_)
        throw Error(ErrorClass::configuration,
                    fmt::format("\"{}\" before = is no collective; legal: all_reduce, all_gather, "
                                "reduce_scatter, all_to_all, broadcast",
                                name.substr(0, equals)));
      file_ = name.substr(equals + 1);
    } else {
      named_kind_ = kind_in(name.substr(name.rfind('/') + 1));
    }
  }

  void line(const std::string& raw) {
    ++line_;
    const std::string text = without_prefix(raw);
    const size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string::npos) return;
    if (text[first] == '#') return comment(text);
    if (text[first] < '0' || text[first] > '9') return;  // what the program or MPI says beside
    const std::vector<std::string> words = words_of(text);
    const std::optional<Row> row = row_of(words);
    // Lines of other programs begin with numbers too (dates): a row has a type as its third word.
    if (row)
      rows_.push_back({line_, *row});
    else if (words.size() >= 3 && number(words[0]) && number(words[1]))
      problem(line_, fmt::format("\"{}\" is no row of the table (size count type redop root, then "
                                 "time algbw busbw #wrong once or twice)",
                                 text.substr(first, 80)));
  }

  NcclTestsLog finish(int64_t profile_gpus_per_node) {
    if (!kind_) kind_ = named_kind_;
    if (!kind_)
      fail(
          "which collective this is can be told neither from the log nor from the file's name; "
          "write all_reduce=FILE (or all_gather, reduce_scatter, all_to_all, broadcast)");
    log_.kind = *kind_;
    place_ranks(profile_gpus_per_node);
    for (const auto& [line, row] : rows_) add(line, row, profile_gpus_per_node);
    if (log_.measurements.empty())
      fail(fmt::format("no row of {} is left to fit{}{}", collective_name(log_.kind),
                       log_.problems.empty() ? "" : "; ",
                       log_.problems.empty() ? "" : log_.problems.front()));
    return std::move(log_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorClass::configuration, fmt::format("{}: {}", file_, what));
  }
  void problem(int64_t line, const std::string& what) {
    log_.problems.push_back(fmt::format("{}:{}: {}", file_, line, what));
  }

  void comment(const std::string& text) {
    static const std::regex rank(
        R"(Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*))");
    static const std::regex starting(R"(Collective test starting:\s*(\S+))");
    std::smatch match;
    if (std::regex_search(text, match, rank)) {
      hosts_[std::stoll(match[1])] = match[2];
      log_.device = match[3];
      while (!log_.device.empty() && std::isspace(static_cast<unsigned char>(log_.device.back())))
        log_.device.pop_back();
    } else if (!kind_ && std::regex_search(text, match, starting)) {
      kind_ = kind_in(match[1]);
    }
  }

  void place_ranks(int64_t profile_gpus_per_node) {
    std::map<std::string, int64_t> on;
    for (const auto& [rank, host] : hosts_) ++on[host];
    log_.ranks = static_cast<int64_t>(hosts_.size());
    log_.nodes = static_cast<int64_t>(on.size());
    if (hosts_.empty()) {
      if (options_.ranks == 0)
        fail("there are no `# Rank` lines that tell the GPUs; give --ranks N and --nodes M");
      log_.ranks = options_.ranks;
      log_.nodes = std::max<int64_t>(1, options_.nodes);
    }
    if (log_.ranks % log_.nodes != 0 || std::any_of(on.begin(), on.end(), [&](const auto& host) {
          return host.second != log_.ranks / log_.nodes;
        }))
      fail(fmt::format("{} ranks are spread unevenly over {} nodes; every node must have as many",
                       log_.ranks, log_.nodes));
    log_.gpus_per_node = log_.ranks / log_.nodes;
    if (log_.ranks < 2) fail("a collective of one GPU says nothing of links");
    if (log_.gpus_per_node > profile_gpus_per_node)
      fail(
          fmt::format("{} GPUs on a node, but the base profile's nodes have {}; give another "
                      "--base",
                      log_.gpus_per_node, profile_gpus_per_node));
  }

  void add(int64_t line, const Row& row, int64_t profile_gpus_per_node) {
    if (row.bytes <= 0 || row.bytes < options_.least_bytes || row.bytes > options_.most_bytes)
      return;
    const double seconds = options_.in_place ? row.in_place_seconds : row.seconds;
    if (seconds < 0) return problem(line, "has no in-place columns");
    if (!(seconds > 0)) return problem(line, "time 0 must be greater than 0");
    if (row.wrong > 0)
      return problem(line, fmt::format("{} elements were wrong: left out", row.wrong));
    // The bus bandwidth of a kind follows from size and time: another kind's would not.
    const double expected = row.bytes * bus_factor(log_.kind, log_.ranks) / row.seconds;
    if (row.bus_rate > 1e9 && std::abs(row.bus_rate / expected - 1) > 0.05)
      return problem(line, fmt::format("busbw {:.4g} GB/s is not what {} of {} GPUs has for this "
                                       "size and time ({:.4g} GB/s): another collective?",
                                       row.bus_rate / 1e9, collective_name(log_.kind), log_.ranks,
                                       expected / 1e9));
    CollectiveMeasurement m;
    m.kind = log_.kind;
    m.group.n0 = log_.nodes, m.group.stride0 = profile_gpus_per_node;
    m.group.n1 = log_.gpus_per_node, m.group.stride1 = 1;
    m.bytes = row.bytes;
    m.seconds = seconds;
    m.what = fmt::format("{}, {}:{}", format_bytes(row.bytes), file_, line);
    if (m.kind == CollectiveKind::all_to_all_v)
      m.pair_bytes.assign(static_cast<size_t>(log_.ranks * log_.ranks),
                          row.bytes / static_cast<double>(log_.ranks));
    log_.measurements.push_back(std::move(m));
  }

  NcclTestsOptions options_;
  std::string file_;
  std::optional<CollectiveKind> kind_, named_kind_;
  int64_t line_ = 0;
  std::map<int64_t, std::string> hosts_;
  std::vector<std::pair<int64_t, Row>> rows_;
  NcclTestsLog log_;
};

}  // namespace

NcclTestsLog read_nccl_tests(const std::string& text, const std::string& name,
                             int64_t profile_gpus_per_node, const NcclTestsOptions& options) {
  Reader reader(name, options);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) reader.line(line);
  return reader.finish(profile_gpus_per_node);
}

}  // namespace moetwin
