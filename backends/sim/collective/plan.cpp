#include "backends/sim/collective/plan.h"

#include <algorithm>
#include <unordered_map>

#include "core/base/error.h"

namespace moetwin {
namespace {

constexpr Protocol kInOrder[] = {Protocol::ll, Protocol::ll128, Protocol::simple};

bool has_any(const ByProtocol& figures) {
  return std::any_of(figures.begin(), figures.end(), [](const auto& f) { return f.has_value(); });
}

Seconds through(const std::vector<PortBytes>& ports, const Machine& machine) {
  Seconds longest;
  for (const PortBytes& p : ports)
    longest = std::max(longest, Bytes(p.bytes) / machine.bandwidth(p.port));
  return longest;
}

bool moves(const CollectiveShape& shape) {
  if (shape.kind == CollectiveKind::all_to_all_v)
    return std::any_of(shape.pair_bytes.begin(), shape.pair_bytes.end(),
                       [](double bytes) { return bytes > 0; });
  return shape.group.size() > 1 && (shape.bytes > 0 || shape.kind == CollectiveKind::barrier);
}

/// A profile's figures, as far as the links between the members of a node go.
ProtocolFigures among(const ProtocolFigures& figures, double mesh_share) {
  ProtocolFigures f = figures;
  f.nvlink_share *= mesh_share;
  return f;
}

void lay_out(const CollectiveShape& shape, const Machine& machine, const AllToAllChoice& way,
             Plan& plan) {
  switch (shape.kind) {
    case CollectiveKind::barrier:
      return plan_barrier(shape, machine, plan);
    case CollectiveKind::all_to_all_v:
      return plan_all_to_all(shape, machine, way, plan);
    case CollectiveKind::broadcast:
      return plan_broadcast(shape, machine, plan);
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return plan_send(shape, machine, plan);
    default:
      if (plan.algorithm == Algorithm::nvls) return plan_nvls(shape, machine, plan);
      if (plan.algorithm == Algorithm::tree) return plan_tree(shape, machine, plan);
      return plan_ring(shape, machine, plan);
  }
}

}  // namespace

Seconds Plan::alone(const Machine& machine) const {
  return latency + std::max(message, through(ports, machine)) + then_latency +
         through(then_ports, machine);
}

void Plan::clear(int64_t members) {
  way = "";
  latency = message = then_latency = Seconds(0);
  ports.clear();
  then_ports.clear();
  sent.assign(static_cast<size_t>(members), 0);
  sent_off_node.assign(static_cast<size_t>(members), 0);
}

AllToAllChoice way_of(const CollectiveShape& shape, const NcclChoice& choice) {
  AllToAllChoice way = choice.all_to_all;
  if (way.way == AllToAll::deduplicated && !shape.of_tokens) way.way = AllToAll::direct;
  return way;
}

std::vector<Candidate> candidates(const CollectiveShape& shape, const Machine& machine,
                                  const NcclChoice& choice) {
  std::vector<Candidate> list;
  switch (shape.kind) {
    case CollectiveKind::barrier:
      list.push_back({Algorithm::tree, &NcclProfile::tree, tree_work(shape, machine)});
      break;
    case CollectiveKind::all_to_all_v: {
      const AllToAllChoice way = way_of(shape, choice);
      const bool own = way.way == AllToAll::deduplicated && has_any(machine.nccl().deduplicated);
      list.push_back({Algorithm::ring, own ? &NcclProfile::deduplicated : &NcclProfile::pairs,
                      all_to_all_work(shape, machine, way)});
      break;
    }
    case CollectiveKind::send:
    case CollectiveKind::recv:
      list.push_back({Algorithm::ring, &NcclProfile::pairs, send_work(shape, machine)});
      break;
    case CollectiveKind::broadcast:
      list.push_back({Algorithm::ring, &NcclProfile::ring, broadcast_work(shape, machine)});
      break;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      list.push_back({Algorithm::ring, &NcclProfile::ring, ring_work(shape, machine)});
      break;
    case CollectiveKind::all_reduce: {
      const bool tree = choice.allows(Algorithm::tree) && has_any(machine.nccl().tree);
      const bool nvls =
          choice.allows(Algorithm::nvls) && has_any(machine.nccl().nvls) && shape.on->fewest > 1;
      const bool ring = choice.allows(Algorithm::ring) || !(tree || nvls);
      if (ring) list.push_back({Algorithm::ring, &NcclProfile::ring, ring_work(shape, machine)});
      // Inside one node the tree is a chain, no faster than a ring.
      if (tree && (shape.on->nodes > 1 || !ring))
        list.push_back({Algorithm::tree, &NcclProfile::tree, tree_work(shape, machine)});
      if (nvls) list.push_back({Algorithm::nvls, &NcclProfile::nvls, nvls_work(shape, machine)});
    }
  }
  const auto& mesh = machine.profile().mesh_share;
  if (const auto found = mesh.find(shape.on->most); found != mesh.end())
    for (Candidate& c : list)
      if (c.figures != &NcclProfile::pairs && c.figures != &NcclProfile::deduplicated)
        c.mesh_share = found->second;
  return list;
}

std::optional<Chosen> fastest(const Candidate& candidate, const Machine& machine,
                              const NcclChoice& choice) {
  const ByProtocol& figures = machine.nccl().*candidate.figures;
  const auto of = [&](bool all) {
    std::optional<Chosen> best;
    for (const Protocol p : kInOrder) {
      const auto& f = figures[static_cast<size_t>(p)];
      if (!f || !(all || choice.allows(p))) continue;
      const Seconds seconds = time_of(candidate.work, among(*f, candidate.mesh_share), machine);
      if (!best || seconds < best->seconds) best = Chosen{p, seconds};
    }
    return best;
  };
  // Sends and receives, and NVLS, do not heed NCCL_PROTO where it leaves them nothing.
  const std::optional<Chosen> allowed = of(false);
  return allowed ? allowed : of(true);
}

const char* way_name(CollectiveKind kind, const Plan& plan, const AllToAllChoice& exchange) {
  constexpr const char* kOfAlgorithm[kAlgorithms][kProtocols] = {
      {"ring, LL", "ring, LL128", "ring, Simple"},
      {"tree, LL", "tree, LL128", "tree, Simple"},
      {"NVLS, LL", "NVLS, LL128", "NVLS, Simple"}};
  constexpr const char* kOfExchange[4][kProtocols] = {
      {"pairs, LL", "pairs, LL128", "pairs, Simple"},
      {"PXN, LL", "PXN, LL128", "PXN, Simple"},
      {"hierarchical, LL", "hierarchical, LL128", "hierarchical, Simple"},
      {"deduplicated, LL", "deduplicated, LL128", "deduplicated, Simple"}};
  constexpr const char* kOfSend[kProtocols] = {"LL", "LL128", "Simple"};
  const auto protocol = static_cast<size_t>(plan.protocol);
  if (is_pair(kind)) return kOfSend[protocol];
  return kind == CollectiveKind::all_to_all_v
             ? kOfExchange[static_cast<size_t>(exchange.way)][protocol]
             : kOfAlgorithm[static_cast<size_t>(plan.algorithm)][protocol];
}

void make_plan(const CollectiveShape& shape, const Machine& machine, const NcclChoice& choice,
               Plan& plan) {
  plan.clear(shape.group.size());
  if (!moves(shape)) return;
  std::optional<Chosen> best;
  const ByProtocol* figures = nullptr;
  double mesh_share = 1;
  for (const Candidate& candidate : candidates(shape, machine, choice)) {
    const std::optional<Chosen> chosen = fastest(candidate, machine, choice);
    if (!chosen || (best && chosen->seconds >= best->seconds)) continue;
    best = chosen;
    plan.algorithm = candidate.algorithm;
    figures = &(machine.nccl().*candidate.figures);
    mesh_share = candidate.mesh_share;
  }
  require(best.has_value(), "a profile has figures of every collective");
  plan.protocol = best->protocol;
  const AllToAllChoice way = way_of(shape, choice);
  plan.way = way_name(shape.kind, plan, way);
  plan.figures = among(*(*figures)[static_cast<size_t>(best->protocol)], mesh_share);
  lay_out(shape, machine, way, plan);
  plan.latency += plan.figures.start;
}

int64_t most_flow_members(CollectiveKind kind) {
  return kind == CollectiveKind::all_to_all_v ? 64 : 256;
}

NodesOfGroup::NodesOfGroup(const Group& group, const Machine& machine) {
  std::unordered_map<int64_t, int64_t> index;
  for (int64_t i = 0; i < group.size(); ++i) {
    const auto [it, added] = index.emplace(machine.node_of(group.member(i)), nodes);
    if (added) {
      ++nodes;
      members_on.push_back(0);
    }
    node_index.push_back(it->second);
    index_on_node.push_back(members_on[static_cast<size_t>(it->second)]++);
  }
  fewest = *std::min_element(members_on.begin(), members_on.end());
  most = *std::max_element(members_on.begin(), members_on.end());
}

}  // namespace moetwin
