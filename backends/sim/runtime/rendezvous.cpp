#include "backends/sim/runtime/rendezvous.h"

#include <fmt/format.h>

#include "backends/sim/collective/flow_run.h"
#include "backends/sim/runtime/sim_backend.h"
#include "core/base/error.h"
#include "core/device/bytes_sent.h"

namespace moetwin {
namespace {

const char* reduce_name(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "max", "min"};
  return kNames[static_cast<int>(op)];
}

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
}

// Elements that all members have to agree on.
int64_t count_of(const CollectiveCall& call) {
  switch (call.kind) {
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::recv:
      return call.recv.elements();
    case CollectiveKind::barrier:
    case CollectiveKind::all_to_all_v:  // counts of pairs are compared when all have called
      return 0;
    default:
      return call.send.elements();
  }
}

const Tensor& typed(const CollectiveCall& call) {
  return call.kind == CollectiveKind::recv ? call.recv : call.send;
}

int64_t root_of(const CollectiveCall& call) {
  return call.kind == CollectiveKind::broadcast ? call.peer : 0;
}

std::string fingerprint(CollectiveKind kind, ReduceOp op, DType dtype, int64_t count, int64_t root,
                        const char* purpose) {
  std::string text = collective_name(kind);
  if (kind != CollectiveKind::barrier) {
    text += "(";
    if (reduces(kind)) text += fmt::format("{} of ", reduce_name(op));
    text += kind == CollectiveKind::all_to_all_v ? dtype_name(dtype)
                                                 : fmt::format("{} x {}", count, dtype_name(dtype));
    if (kind == CollectiveKind::broadcast) text += fmt::format(" from {}", root);
    text += ")";
  }
  return fmt::format("{} \"{}\"", text, purpose);
}

int64_t row_bytes(const Tensor& tensor) {
  int64_t bytes = dtype_size(tensor.dtype);
  for (int d = 1; d < tensor.shape.rank; ++d) bytes *= tensor.shape[d];
  return bytes;
}

}  // namespace

void Collective::reset(GroupState& in, uint64_t new_number, size_t new_members) {
  group = &in;
  number = new_number;
  ranks.clear();
  members.assign(new_members, {});
  called = arrived = 0;
  start = end = listed_bytes = 0;
  task = nullptr;
  data.clear();
}

int64_t Collective::world_rank(size_t member) const {
  return group->group.member(group_rank(member));
}

std::string call_name(CollectiveKind kind, uint64_t number, const std::string& group,
                      const char* purpose) {
  return fmt::format("{} {} of group {} (\"{}\")", collective_name(kind), number, group, purpose);
}

std::string Collective::name() const { return call_name(kind, number, group->name, purpose); }

Collective* Rendezvous::make(GroupState& group, uint64_t number, size_t members) {
  if (free_.empty()) {
    collectives_.push_back(std::make_unique<Collective>());
    free_.push_back(collectives_.back().get());
  }
  Collective* made = free_.back();
  free_.pop_back();
  made->reset(group, number, members);
  return made;
}

GroupState& Rendezvous::group(const Group& group, const std::string& name, int64_t rank_in_group) {
  Communicators& same =
      groups_[{group.base, group.n0, group.stride0, group.n1, group.stride1, name}];
  same.next.resize(static_cast<size_t>(group.size()));
  const size_t number = same.next[static_cast<size_t>(rank_in_group)]++;
  if (number == same.made.size()) {
    auto state = std::make_unique<GroupState>(group, simulation_.machine());
    state->name = number ? fmt::format("{} #{}", name, number + 1) : name;
    state->calls.resize(static_cast<size_t>(group.size()));
    same.made.push_back(std::move(state));
  }
  return *same.made[number];
}

Collective* Rendezvous::find(GroupState& group, int64_t rank_in_group, const CollectiveCall& call,
                             size_t& member) {
  const auto open = [&](std::deque<Collective*>& waiting, uint64_t oldest, uint64_t number,
                        size_t members) {
    const size_t at = number - oldest;
    while (waiting.size() <= at) waiting.push_back(make(group, oldest + waiting.size(), members));
    return waiting[at];
  };
  if (!is_pair(call.kind)) {
    member = static_cast<size_t>(rank_in_group);
    return open(group.waiting_for_calls, group.oldest, ++group.calls[member],
                static_cast<size_t>(group.group.size()));
  }
  const bool sends = call.kind == CollectiveKind::send;
  if (call.peer < 0 || call.peer >= group.group.size() || call.peer == rank_in_group)
    throw Error(ErrorClass::internal,
                fmt::format("internal error: rank {} of group {} cannot {} with member {}",
                            rank_in_group, group.name, collective_name(call.kind), call.peer));
  const int64_t from = sends ? rank_in_group : call.peer, to = sends ? call.peer : rank_in_group;
  GroupState::Pair& pair = group.pairs[{from, to}];
  member = sends ? 0 : 1;
  Collective* found =
      open(pair.waiting_for_calls, pair.oldest, ++(sends ? pair.sends : pair.receives), 2);
  found->ranks = {from, to};
  return found;
}

void Rendezvous::compare(const Collective& c, size_t member, const CollectiveCall& call,
                         SimBackend& backend) const {
  const bool same = is_pair(c.kind) ? is_pair(call.kind)
                                    : call.kind == c.kind && root_of(call) == c.root &&
                                          (!reduces(c.kind) || call.reduce == c.reduce);
  if (same && count_of(call) == c.count && typed(call).dtype == c.dtype) return;
  throw Error(
      ErrorClass::deadlock,
      fmt::format(
          "ranks {} and {} disagree about call {} of group {}: rank {} calls {}, "
          "rank {} calls {}. All members must call the same collectives in the same "
          "order (member {} of {})",
          c.world_rank(c.first), backend.rank(), c.number, c.group->name, c.world_rank(c.first),
          fingerprint(c.kind, c.reduce, c.dtype, c.count, c.root, c.purpose), backend.rank(),
          fingerprint(call.kind, call.reduce, typed(call).dtype, count_of(call), root_of(call),
                      call.purpose),
          member, c.members.size()));
}

void Rendezvous::add_data(Collective& c, size_t member, SimBackend& backend, int32_t stream,
                          const CollectiveCall& call) {
  TaskGraph& tasks = simulation_.tasks();
  const bool stored = call.send.has_storage() || call.recv.has_storage();
  if (c.called == 0 && (stored || tasks.pooled())) c.task = tasks.open(backend.next_key());
  if (!c.task) {
    require(!stored, "every member of a collective has storage, or none");
    return;
  }
  require(stored || tasks.pooled(), "every member of a collective has storage, or none");
  if (c.data.empty()) c.data.resize(c.members.size());
  MemberData& data = c.data[member];
  data.send = HeldTensor(call.send);
  data.recv = HeldTensor(call.recv);
  data.send_rows = call.send_rows;
  data.send_begin = call.send_begin;
  data.recv_rows = call.recv_rows;
  data.recv_begin = call.recv_begin;
  backend.chain(stream, c.task);
}

Collective* Rendezvous::call(GroupState& group, int64_t rank_in_group, SimBackend& backend,
                             int32_t stream, const CollectiveCall& call, size_t& member) {
  Collective& c = *find(group, rank_in_group, call, member);
  if (c.called == 0) {
    c.kind = call.kind;
    c.first = member;
    c.dtype = typed(call).dtype;
    c.count = count_of(call);
    c.root = root_of(call);
    c.reduce = call.reduce;
    c.purpose = call.purpose;
  } else {
    compare(c, member, call, backend);
  }
  add_data(c, member, backend, stream, call);
  c.listed_bytes += static_cast<double>(bytes_sent(call, rank_in_group, group.group.size()));
  Collective::Member& m = c.members[member];
  m.backend = &backend;
  m.stream = stream;
  m.sequence = call.sequence;
  if (call.kind == CollectiveKind::all_to_all_v) {
    m.row_bytes = row_bytes(call.send);
    m.send_rows = call.send_rows;
    m.recv_rows = call.recv_rows;
  }
  if (++c.called == static_cast<int64_t>(c.members.size())) {
    plan(c);
    // All have called, so nobody looks for it any more.
    if (is_pair(c.kind)) {
      GroupState::Pair& pair = group.pairs[{c.ranks[0], c.ranks[1]}];
      pair.waiting_for_calls.pop_front();
      ++pair.oldest;
    } else {
      group.waiting_for_calls.pop_front();
      ++group.oldest;
    }
    if (c.task) {
      const int64_t root = is_pair(c.kind) ? 0 : c.root;
      auto data = std::make_shared<std::vector<MemberData>>(std::move(c.data));
      simulation_.tasks().close(
          c.task, [kind = c.kind, op = c.reduce, root, data] { move_data(kind, op, root, *data); });
    }
  }
  return &c;
}

void Rendezvous::correct(Collective& c) const {
  if (simulation_.corrections().empty()) return;
  const double factor =
      is_pair(c.kind) ? simulation_.corrections().factor("send", c.group->name, c.listed_bytes)
                      : simulation_.corrections().factor(
                            collective_name(c.kind), c.group->name,
                            c.listed_bytes / static_cast<double>(c.members.size()));
  c.plan.latency = c.plan.latency * factor;
  c.plan.message = c.plan.message * factor;
  c.plan.then_latency = c.plan.then_latency * factor;
  for (auto* ports : {&c.plan.ports, &c.plan.then_ports})
    for (PortBytes& port : *ports) port.bytes *= factor;
}

void Rendezvous::plan(Collective& c) {
  const auto n = c.members.size();
  if (simulation_.settings().fidelity == Fidelity::flow &&
      static_cast<int64_t>(n) > most_flow_members(c.kind))
    throw Error(ErrorClass::configuration,
                fmt::format("cluster.fidelity: flow moves {} among at most {} members, {} has {}; "
                            "use fluid",
                            collective_name(c.kind), most_flow_members(c.kind), c.name(), n));
  CollectiveShape& shape = c.shape;
  shape.kind = is_pair(c.kind) ? CollectiveKind::send : c.kind;
  shape.group = c.group->group;
  shape.on = &c.group->on;
  shape.of_tokens = c.group->name == "ep";
  shape.root = c.root;
  if (is_pair(c.kind)) {
    shape.from = c.ranks[0];
    shape.to = c.ranks[1];
  }
  const double factor =
      c.kind == CollectiveKind::all_gather || c.kind == CollectiveKind::reduce_scatter
          ? static_cast<double>(n)
          : 1;
  shape.bytes = static_cast<double>(c.count) * static_cast<double>(dtype_size(c.dtype)) * factor;
  if (c.kind == CollectiveKind::all_to_all_v) {
    shape.pair_bytes.resize(n * n);
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) {
        const int64_t sent = (*c.members[i].send_rows)[j], taken = (*c.members[j].recv_rows)[i];
        if (sent != taken || (sent > 0 && c.members[i].row_bytes != c.members[j].row_bytes))
          throw Error(ErrorClass::deadlock,
                      fmt::format("{}: rank {} sends {} rows of {} bytes to rank {}, which expects "
                                  "{} rows of {} bytes",
                                  c.name(), c.world_rank(i), sent, c.members[i].row_bytes,
                                  c.world_rank(j), taken, c.members[j].row_bytes));
        shape.pair_bytes[i * n + j] =
            static_cast<double>(sent) * static_cast<double>(c.members[i].row_bytes);
      }
  }
  make_plan(shape, simulation_.machine(), simulation_.settings().choice, c.plan);
  correct(c);
  if (is_pair(c.kind)) {  // by member of the pair, not of the group
    c.plan.sent = {shape.bytes, 0};
    const bool off = !simulation_.machine().same_node(c.world_rank(0), c.world_rank(1));
    c.plan.sent_off_node = {off ? shape.bytes : 0, 0};
  }
}

}  // namespace moetwin
