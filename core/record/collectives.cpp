#include "core/record/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/units.h"

namespace moetwin {

double CollectiveLine::bus_bandwidth() const {
  return seconds > 0 ? bytes / seconds : std::numeric_limits<double>::quiet_NaN();
}

void add_collective(CollectiveTable& table, const std::string& kind, const Traffic& traffic) {
  if (traffic.bytes <= 0) return;
  CollectiveSums& sums =
      table[{kind, traffic.purpose, traffic.group, traffic.algorithm, traffic.members}];
  ++sums.ranks;
  sums.calls += traffic.calls;
  sums.bytes += traffic.bytes;
  sums.off_node += traffic.bytes_off_node;
  sums.seconds += traffic.seconds;
}

void add_collectives(CollectiveTable& table, const CollectiveTable& step) {
  for (const auto& [key, more] : step) {
    CollectiveSums& sums = table[key];
    sums.ranks += more.ranks;
    sums.calls += more.calls;
    sums.bytes += more.bytes;
    sums.off_node += more.off_node;
    sums.seconds += more.seconds;
  }
}

std::vector<CollectiveLine> collective_lines(const CollectiveTable& table, int64_t steps) {
  std::vector<CollectiveLine> lines;
  for (const auto& [key, sums] : table) {
    CollectiveLine line;
    std::tie(line.kind, line.purpose, line.group, line.algorithm, line.members) = key;
    const auto ranks = static_cast<double>(sums.ranks);
    line.ranks = ranks / static_cast<double>(steps);
    line.calls = static_cast<double>(sums.calls) / ranks;
    line.bytes = static_cast<double>(sums.bytes) / ranks;
    line.off_node = static_cast<double>(sums.off_node) / ranks;
    line.seconds = sums.seconds / ranks;
    lines.push_back(std::move(line));
  }
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    const auto known = [](double seconds) { return seconds > 0 ? seconds : 0; };
    return std::pair(known(a.seconds), a.bytes) > std::pair(known(b.seconds), b.bytes);
  });
  return lines;
}

std::vector<std::string> collective_table_lines(const std::vector<CollectiveLine>& lines,
                                                size_t most) {
  if (lines.empty()) return {};
  const bool timed = lines.front().seconds > 0;
  const bool named = std::any_of(lines.begin(), lines.end(),
                                 [](const CollectiveLine& l) { return !l.algorithm.empty(); });
  const auto group_of = [](const CollectiveLine& l) {
    return fmt::format("{} of {}", l.group, l.members);
  };
  const size_t shown = std::min(most, lines.size());
  size_t purpose_width = 3, group_width = 5;
  for (size_t i = 0; i < shown; ++i) {
    purpose_width = std::max(purpose_width, lines[i].purpose.size());
    group_width = std::max(group_width, group_of(lines[i]).size());
  }
  const auto line = [&](const std::string& kind, const std::string& purpose,
                        const std::string& group, const std::string& calls,
                        const std::string& bytes, const std::string& time, const std::string& rate,
                        const std::string& algorithm) {
    std::string row = fmt::format("  {:<15} {:<{}} {:<{}} {:>7} {:>12}", kind, purpose,
                                  purpose_width, group, group_width, calls, bytes);
    if (timed) row += fmt::format(" {:>11} {:>11}", time, rate);
    return named ? row + "  " + algorithm : row;
  };
  std::vector<std::string> text;
  text.push_back(timed ? "Collectives of a rank and step; bandwidth: what it sends over its time"
                       : "Collectives of a rank and step");
  text.push_back(
      line("collective", "for", "group", "calls", "sends", "time", "bandwidth", "algorithm"));
  for (size_t i = 0; i < shown; ++i) {
    const CollectiveLine& l = lines[i];
    std::string kind = l.kind;
    std::replace(kind.begin(), kind.end(), '_', '-');
    text.push_back(line(kind, l.purpose, group_of(l), fmt::format("{:.4g}", l.calls),
                        format_bytes(l.bytes), format_seconds(l.seconds),
                        fmt::format("{:.2f} GB/s", l.bus_bandwidth() / 1e9), l.algorithm));
  }
  if (lines.size() > shown) text.push_back(fmt::format("  {} more", lines.size() - shown));
  return text;
}

}  // namespace moetwin
