#include "backends/cuda/job/stuck.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/cuda/job/store_state.h"

namespace moetwin {
namespace {

/// A rank that has not been heard of for so long may be stopped or its node unreachable.
constexpr double kSilentSeconds = 5;

const CommunicatorState* find(const RankStatus& status, const Stuck& stuck) {
  for (const CommunicatorState& c : status.communicators)
    if (c.name == stuck.group && c.members == stuck.members) return &c;
  return nullptr;
}

}  // namespace

Failure describe_stuck(const Stuck& stuck, const std::vector<RankHeartbeat>& states) {
  std::vector<int64_t> missing;
  std::string lines;
  bool all_alive = true;
  for (int64_t member : stuck.members) {
    const auto it = std::find_if(states.begin(), states.end(),
                                 [&](const RankHeartbeat& s) { return s.rank == member; });
    if (it == states.end()) continue;
    const RankStatus status = RankStatus::read(it->status);
    const CommunicatorState* c = find(status, stuck);
    // Numbers of sends and receives say nothing of the other side's: who is in any call of the
    // group may be in this one.
    const bool arrived = member == stuck.rank ||
                         (c && (stuck.sequence == 0 ||
                                (stuck.pair ? !c->next.empty() : c->started >= stuck.sequence)));
    const bool silent = it->gone || it->age > kSilentSeconds;
    std::string how;
    if (it->gone)
      how = "its process is gone";
    else if (status.program_ended)
      how = "its program has ended";
    else if (!c)
      how = "does not make this group's communicator";
    else if (stuck.sequence == 0)
      how = "makes it too";
    else if (arrived)
      how = "is in it";
    else if (!stuck.pair && c->called >= stuck.sequence)
      how = "has called it, behind work that cannot go on";
    else
      how = "has not called it";
    if (c && !c->next.empty())
      how += fmt::format("; waits in {} for {:.3g} s", c->next, c->waiting);
    if (status.rank == member)
      for (const CommunicatorState& other : status.communicators)
        if (&other != c && !other.next.empty())
          how += fmt::format("; waits in {} for {:.3g} s", other.next, other.waiting);
    if (member != stuck.rank && !status.last.empty()) how += "; last called " + status.last;
    if (silent && !it->gone) how += fmt::format("; not heard of for {:.3g} s", it->age);
    lines += fmt::format("\n  rank {} ({}): {}", member, it->process, how);
    if (!arrived) {
      missing.push_back(member);
      all_alive = all_alive && !silent;
    }
  }
  std::string first;
  if (stuck.sequence == 0)
    first = fmt::format("rank {} could not make the communicator of group {} in {:.3g} s",
                        stuck.rank, stuck.group, stuck.seconds);
  else
    first =
        fmt::format("rank {} is stuck in {} for {:.3g} s", stuck.rank, stuck.call, stuck.seconds);
  first += fmt::format(" (distributed_config.timeout_seconds: {:.3g}); ", stuck.limit);
  if (missing.empty())
    first += fmt::format("all {} members have arrived: sizes differ, or the network stands still",
                         stuck.members.size());
  else
    first += fmt::format("not arrived: {} of {}", rank_list(missing), rank_list(stuck.members));
  std::string text = first + lines;
  if (!stuck.calls.empty())
    text += fmt::format("\nlast calls of rank {}:{}", stuck.rank, stuck.calls);
  return {all_alive ? ErrorClass::deadlock : ErrorClass::fault, text};
}

}  // namespace moetwin
