#include <algorithm>

#include "backends/sim/collective/flow_run.h"
#include "backends/sim/collective/member_ports.h"
#include "backends/sim/collective/plan.h"

namespace moetwin {
namespace {

/// What a message takes at least.
Seconds of_message(const CollectiveShape& shape, const Machine& machine, size_t from, size_t to,
                   double bytes) {
  const auto& limits = machine.nccl().message;
  if (!limits) return Seconds(0);
  const NodesOfGroup& on = *shape.on;
  const auto node = static_cast<size_t>(on.node_index[from]);
  return Bytes(bytes) / (on.node_index[from] == on.node_index[to]
                             ? limits->inside(Bytes(bytes), on.members_on[node])
                             : limits->between);
}

/// Who sends how much to whom, by group rank.
class Exchange {
 public:
  Exchange(const CollectiveShape& shape, const Machine& machine, const AllToAllChoice& choice)
      : shape_(shape),
        on_(*shape.on),
        choice_(choice),
        deduplicates_(choice.way == AllToAll::deduplicated),
        way_(on_.nodes > 1 ? choice.way : AllToAll::direct),
        first(shape, machine),
        second(shape, machine) {
    const auto n = static_cast<size_t>(shape.group.size());
    if (way_ != AllToAll::direct) {
      members_.resize(static_cast<size_t>(on_.nodes));
      for (size_t i = 0; i < n; ++i)
        members_[static_cast<size_t>(on_.node_index[i])].push_back(static_cast<int64_t>(i));
    }
    nvlink_peers_.assign(n, 0), nic_peers_.assign(n, 0);
    for (size_t i = 0; i < n; ++i) {
      std::vector<bool> nodes(way_ == AllToAll::direct ? 0 : static_cast<size_t>(on_.nodes));
      if (deduplicates_) count_receivers(i, machine);
      for (size_t j = 0; j < n; ++j) {
        const double bytes = shape.pair_bytes[i * n + j];
        if (bytes <= 0) continue;
        if (i == j) {
          most_own = std::max(most_own, bytes);
        } else {
          add(i, j, bytes, nodes);
          if (!deduplicates_) message = std::max(message, of_message(shape, machine, i, j, bytes));
        }
      }
    }
  }

  bool staged() const { return way_ == AllToAll::hierarchical; }
  /// Without the bytes.
  Work steps(const Machine& machine) const {
    Work work;
    const GpuProfile& gpu = machine.profile().gpu;
    work.own = Bytes(2 * most_own) /
               BytesPerSecond(gpu.memory_bandwidth.value *
                              gpu.bandwidth_efficiency[static_cast<size_t>(KernelKind::copy)]);
    double nvlink = 0, nic = 0;
    for (size_t i = 0; i < nic_peers_.size(); ++i) {
      nvlink = std::max(nvlink, nvlink_peers_[i]);
      nic = std::max(nic, nic_peers_[i]);
    }
    // One exchange overlaps the other's latency; a relayed one has both.
    const bool relayed = way_ != AllToAll::direct && nic > 0;
    work.nic_steps = nic > 0 ? 1 : 0;
    work.nvlink_steps = nvlink > 0 && (relayed || nic == 0) ? 1 : 0;
    work.nvlink_peers = std::max(0.0, nvlink - 1);
    work.nic_peers = std::max(0.0, nic - 1);
    return work;
  }

  /// From member to member: stage 0, and where there are two 1.
  template <class Each>
  void each_pass(Each&& each) const {
    const auto n = static_cast<size_t>(shape_.group.size());
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j)
        if (const double bytes = shape_.pair_bytes[i * n + j]; bytes > 0 && i != j) {
          const int64_t relay = relay_of(i, j);
          const auto [there, on] = different_.empty() ? std::pair(1.0, 1.0) : different_[i * n + j];
          if (relay != static_cast<int64_t>(i))
            each(0, static_cast<int64_t>(i), relay,
                 bytes * (on_.node_index[i] == on_.node_index[j] ? on : there));
          if (relay != static_cast<int64_t>(j))
            each(staged() ? 1 : 0, relay, static_cast<int64_t>(j), bytes * on);
        }
  }

 private:
  // Inside a node the receiver itself.
  int64_t relay_of(size_t i, size_t j) const {
    if (on_.node_index[i] == on_.node_index[j]) return static_cast<int64_t>(j);
    if (way_ == AllToAll::direct) return static_cast<int64_t>(i);
    if (deduplicates_) {
      const auto& there = members_[static_cast<size_t>(on_.node_index[j])];
      const auto place = static_cast<size_t>(on_.index_on_node[i]);
      return place < there.size() ? there[place] : static_cast<int64_t>(j);
    }
    const auto& here = members_[static_cast<size_t>(on_.node_index[i])];
    const auto rail = static_cast<size_t>(on_.index_on_node[j]);
    return rail < here.size() ? here[rail] : static_cast<int64_t>(i);
  }

  void add(size_t i, size_t j, double bytes, std::vector<bool>& nodes) {
    const auto from = static_cast<int64_t>(i), to = static_cast<int64_t>(j);
    const auto [there, on] =
        different_.empty() ? std::pair(1.0, 1.0) : different_[i * nvlink_peers_.size() + j];
    if (on_.node_index[i] == on_.node_index[j]) {
      first.pass(from, to, bytes * on);
      nvlink_peers_[i] += 1;
      return;
    }
    const int64_t relay = relay_of(i, j);
    if (relay != from) first.pass(from, relay, bytes * there);
    if (relay != to) (staged() ? second : first).pass(relay, to, bytes * on);
    if (way_ == AllToAll::direct) {
      nic_peers_[i] += 1;
    } else if (const auto node = static_cast<size_t>(on_.node_index[j]); !nodes[node]) {
      nodes[node] = true;  // one message to each node's receiver of a rail
      nic_peers_[i] += 1;
    }
  }

  /// Of the rows that member i sends, which are different at their nodes and at their GPUs.
  void count_receivers(size_t i, const Machine& machine) {
    const size_t n = nvlink_peers_.size();
    if (different_.empty()) different_.assign(n * n, {1, 1});
    std::vector<double> to_node(static_cast<size_t>(on_.nodes));
    double all = 0;
    for (size_t j = 0; j < n; ++j) {
      to_node[static_cast<size_t>(on_.node_index[j])] += shape_.pair_bytes[i * n + j];
      all += shape_.pair_bytes[i * n + j];
    }
    if (all <= 0) return;
    if (const auto& relay = machine.nccl().relay; relay && on_.nodes > 1) {
      double passed = 0;
      for (const double bytes : to_node) passed += bytes * choice_.different(bytes / all);
      message = std::max(message, Bytes(passed) / *relay);
    }
    for (size_t j = 0; j < n; ++j)
      different_[i * n + j] = {
          choice_.different(to_node[static_cast<size_t>(on_.node_index[j])] / all),
          choice_.different(shape_.pair_bytes[i * n + j] / all)};
  }

  const CollectiveShape& shape_;
  const NodesOfGroup& on_;
  AllToAllChoice choice_;
  bool deduplicates_;
  AllToAll way_;
  /// By sender and receiver: the share of their rows that goes between nodes, and to the receiver;
  /// empty: all of them.
  std::vector<std::pair<double, double>> different_;
  std::vector<std::vector<int64_t>> members_;
  std::vector<double> nvlink_peers_, nic_peers_;

 public:
  MemberPorts first, second;
  double most_own = 0;
  Seconds message;
};

}  // namespace

Work all_to_all_work(const CollectiveShape& shape, const Machine& machine,
                     const AllToAllChoice& way) {
  const Exchange exchange(shape, machine, way);
  Work work = exchange.steps(machine);
  if (exchange.staged()) {
    Work before;
    exchange.first.busiest(before);
    work.nvlink_before = before.nvlink;
    exchange.second.busiest(work);
  } else {
    exchange.first.busiest(work);
    work.message = exchange.message;
  }
  return work;
}

void plan_all_to_all(const CollectiveShape& shape, const Machine& machine,
                     const AllToAllChoice& way, Plan& plan) {
  const Exchange exchange(shape, machine, way);
  if (!exchange.staged()) plan.message = exchange.message;
  const Work steps = exchange.steps(machine);
  plan.latency = path_of(steps, plan.figures, machine);
  if (exchange.staged()) {
    exchange.second.emit(plan);
    plan.then_ports = std::move(plan.ports);
    if (!plan.then_ports.empty()) {
      Work inside = steps;
      inside.nic_steps = inside.nic_peers = 0;
      const Seconds before = path_of(inside, plan.figures, machine);
      plan.then_latency = plan.latency - before;
      plan.latency = before;
    }
  }
  exchange.first.emit(plan);
  exchange.first.count_sent(plan);
  if (exchange.staged()) exchange.second.count_sent(plan);
}

void flow_all_to_all(const CollectiveShape& shape, const Machine& machine,
                     const AllToAllChoice& way, const Plan& plan, FlowRun& run) {
  const Exchange exchange(shape, machine, way);
  Flows stage[2];
  exchange.each_pass([&](int s, int64_t from, int64_t to, double bytes) {
    const int64_t a = shape.group.member(from), b = shape.group.member(to);
    stage[s].push_back({a, b, Hop(plan.figures, machine, a, b).taken_up(bytes)});
  });
  const double latency = (plan.latency - plan.figures.start).value;
  run.spawn([&run, first = stage[0], second = stage[1], latency, then = plan.then_latency.value] {
    run.sleep(latency);
    run.send_all(first);
    run.sleep(then);
    run.send_all(second);
  });
}

Work send_work(const CollectiveShape& shape, const Machine& machine) {
  Work work;
  const bool inside =
      machine.same_node(shape.group.member(shape.from), shape.group.member(shape.to));
  (inside ? work.nvlink_steps : work.nic_steps) = 1;
  (inside ? work.nvlink : work.nic) = Bytes(shape.bytes);
  std::vector<int64_t> links;
  if (!inside)
    machine.fabric_route(shape.group.member(shape.from), shape.group.member(shape.to), links);
  for (const int64_t link : links)
    work.fabric =
        std::max(work.fabric, Bytes(machine.as_of_first(machine.fabric_port(link), shape.bytes)));
  work.message = of_message(shape, machine, static_cast<size_t>(shape.from),
                            static_cast<size_t>(shape.to), shape.bytes);
  return work;
}

void plan_send(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  const int64_t from = shape.group.member(shape.from), to = shape.group.member(shape.to);
  std::vector<int64_t> route;
  machine.route(from, to, route);
  const double taken_up = Hop(plan.figures, machine, from, to).taken_up(shape.bytes);
  for (int64_t port : route) plan.ports.push_back({port, taken_up});
  std::sort(plan.ports.begin(), plan.ports.end(),
            [](const PortBytes& a, const PortBytes& b) { return a.port < b.port; });
  const Work work = send_work(shape, machine);
  plan.latency = path_of(work, plan.figures, machine);
  plan.message = work.message;
  plan.sent[static_cast<size_t>(shape.from)] = shape.bytes;
  if (!machine.same_node(from, to))
    plan.sent_off_node[static_cast<size_t>(shape.from)] = shape.bytes;
}

void flow_send(const CollectiveShape& shape, const Machine& machine, const ProtocolFigures& figures,
               FlowRun& run) {
  const int64_t from = shape.group.member(shape.from), to = shape.group.member(shape.to);
  const Hop hop(figures, machine, from, to);
  run.spawn([&run, from, to, hop, bytes = shape.bytes] {
    run.send_all({{from, to, hop.taken_up(bytes)}});
    run.sleep(hop.latency);
  });
}

}  // namespace moetwin
