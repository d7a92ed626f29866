#pragma once
// Where the members of a group meet: calls are matched in order, compared, planned and carried.

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/sim/collective/arithmetic.h"
#include "backends/sim/collective/plan.h"
#include "backends/sim/runtime/task_graph.h"
#include "core/device/communicator.h"

namespace moetwin {

class SimBackend;
class Simulation;
struct GroupState;

/// One collective, from its first member's call until its end.
/// "all_reduce 3 of group ep0 ("gradients")".
std::string call_name(CollectiveKind kind, uint64_t number, const std::string& group,
                      const char* purpose);

struct Collective {
  struct Member {
    SimBackend* backend = nullptr;  ///< null: has not called yet
    int32_t stream = 0;
    uint64_t sequence = 0;
    int64_t row_bytes = 0;
    HostSizes send_rows, recv_rows;
    bool arrived = false;
  };
  GroupState* group = nullptr;
  CollectiveKind kind = CollectiveKind::barrier;
  uint64_t number =
      0;  ///< n-th collective of its group, from 1; n-th of its pair for send and recv
  std::vector<int64_t> ranks;  ///< group rank of each member; empty: all, in order
  std::vector<Member> members;
  int64_t called = 0, arrived = 0;
  double start = 0, end = 0;  ///< start: latest arrival so far
  double listed_bytes = 0;    ///< of all members that called, as op lists have them
  size_t first = 0;  ///< the member that called first; its call is compared with the others
  DType dtype = DType::f32;
  int64_t count = 0, root = 0;
  ReduceOp reduce = ReduceOp::sum;
  const char* purpose = "";
  CollectiveShape shape;
  Plan plan;
  TaskGraph::Handle task;  ///< null: there is no data to move
  std::vector<MemberData> data;

  /// For the next use; keeps memory.
  void reset(GroupState& in, uint64_t new_number, size_t new_members);
  int64_t group_rank(size_t member) const {
    return ranks.empty() ? static_cast<int64_t>(member) : ranks[member];
  }
  /// World rank of a member, whether it has called or not.
  int64_t world_rank(size_t member) const;
  std::string name() const;
};

/// What the communicators of one group and name share.
struct GroupState {
  GroupState(const Group& g, const Machine& machine) : group(g), on(g, machine) {}
  Group group;
  NodesOfGroup on;
  std::string name;
  std::vector<uint64_t> calls;                ///< collectives called so far, by member
  std::deque<Collective*> waiting_for_calls;  ///< in order; the first is number `oldest`
  uint64_t oldest = 1;
  struct Pair {
    uint64_t sends = 0, receives = 0;
    std::deque<Collective*> waiting_for_calls;
    uint64_t oldest = 1;
  };
  std::map<std::pair<int64_t, int64_t>, Pair> pairs;  ///< (from, to) -> matched in order
};

/// All groups of a run.
class Rendezvous {
 public:
  explicit Rendezvous(Simulation& simulation) : simulation_(simulation) {}

  /// The state that rank's n-th communicator with this group and name shares with the other
  /// members' n-th.
  GroupState& group(const Group& group, const std::string& name, int64_t rank_in_group);
  /// Enters one member's call; throws Error(deadlock) where it does not fit the others'.
  Collective* call(GroupState& group, int64_t rank_in_group, SimBackend& backend, int32_t stream,
                   const CollectiveCall& call, size_t& member);
  /// It has ended for all its members.
  void give_back(Collective* collective) { free_.push_back(collective); }

 private:
  Collective* make(GroupState& group, uint64_t number, size_t members);
  Collective* find(GroupState& group, int64_t rank_in_group, const CollectiveCall& call,
                   size_t& member);
  void compare(const Collective& collective, size_t member, const CollectiveCall& call,
               SimBackend& backend) const;
  void add_data(Collective& collective, size_t member, SimBackend& backend, int32_t stream,
                const CollectiveCall& call);
  void plan(Collective& collective);
  /// Scales the plan as the machine's profile says.
  void correct(Collective& collective) const;

  struct Key {
    int64_t base, n0, stride0, n1, stride1;
    std::string name;
    auto operator<=>(const Key&) const = default;
  };
  struct Communicators {
    std::vector<std::unique_ptr<GroupState>> made;
    std::vector<size_t> next;  ///< by member: how many it has made
  };
  Simulation& simulation_;
  std::map<Key, Communicators> groups_;
  std::vector<std::unique_ptr<Collective>> collectives_;  ///< all that were ever needed at once
  std::vector<Collective*> free_;
};

}  // namespace moetwin
