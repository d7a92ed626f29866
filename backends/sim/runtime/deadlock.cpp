#include <fmt/format.h>

#include <map>
#include <vector>

#include "backends/sim/runtime/sim_backend.h"

namespace moetwin {
namespace {

constexpr size_t kMostTold = 8;

// Members that have not reached a collective: those that did not call it, and those whose stream
// stands before something else.
std::vector<int64_t> missing_ranks(const Collective& c) {
  std::vector<int64_t> ranks;
  for (size_t m = 0; m < c.members.size(); ++m)
    if (!c.members[m].arrived) ranks.push_back(c.world_rank(m));
  return ranks;
}

std::string list(const std::vector<int64_t>& ranks) {
  const size_t told = std::min(ranks.size(), kMostTold);
  std::string text = fmt::format(
      "{}", fmt::join(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(told), ", "));
  if (told < ranks.size()) text += fmt::format(" and {} more", ranks.size() - told);
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

}  // namespace

std::string describe_deadlock(const Simulation& simulation) {
  // Collectives at the front of a stream, in order of rank and stream.
  std::vector<const Collective*> stuck;
  std::map<int64_t, int64_t> waits_for;  // rank -> first rank that it waits for
  for (const auto& backend : simulation.backends())
    for (const StreamQueue& q : backend->streams()) {
      if (q.pending.empty() || q.pending.front().kind != QueueItem::Kind::collective) continue;
      const Collective* c = q.pending.front().collective;
      if (std::find(stuck.begin(), stuck.end(), c) == stuck.end()) stuck.push_back(c);
      const std::vector<int64_t> missing = missing_ranks(*c);
      if (!missing.empty()) waits_for.emplace(backend->rank(), missing[0]);
    }
  std::string text = "deadlock: no rank can go on.";
  for (size_t i = 0; i < std::min(stuck.size(), kMostTold); ++i) {
    const Collective& c = *stuck[i];
    std::vector<int64_t> waiting;
    for (size_t m = 0; m < c.members.size(); ++m)
      if (c.members[m].arrived) waiting.push_back(c.world_rank(m));
    text += fmt::format("\n  {}: {} in it since {:.9g} s for", c.name(),
                        list(waiting) + (waiting.size() == 1 ? " waits" : " wait"), c.start);
    const std::vector<int64_t> missing = missing_ranks(c);
    for (size_t k = 0; k < std::min(missing.size(), kMostTold); ++k) {
      const auto& backend = *simulation.backends()[static_cast<size_t>(missing[k])];
      bool called = false;
      for (const Collective::Member& m : c.members) called = called || m.backend == &backend;
      const std::string last = backend.last_called();
      text += fmt::format("{} rank {} ({}{})", k ? "," : "", missing[k],
                          backend.finished() ? "its program has ended"
                          : called           ? "has called it, behind work that cannot go on"
                                             : "has not called it",
                          last.empty() ? "; has called none" : "; last called " + last);
    }
    if (missing.size() > kMostTold) text += fmt::format(" and {} more", missing.size() - kMostTold);
  }
  if (stuck.size() > kMostTold)
    text += fmt::format("\n  and {} more collectives", stuck.size() - kMostTold);
  for (const auto& [rank, unused] : waits_for) {
    std::vector<int64_t> path{rank};
    for (auto it = waits_for.find(rank); it != waits_for.end() && path.size() <= waits_for.size();
         it = waits_for.find(it->second)) {
      path.push_back(it->second);
      if (it->second == rank) {
        std::string cycle;
        for (int64_t r : path) cycle += fmt::format("{}rank {}", cycle.empty() ? "" : " -> ", r);
        return text + "\n  they wait in a circle: " + cycle;
      }
    }
  }
  return text;
}

}  // namespace moetwin
