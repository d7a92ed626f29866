#include <bit>

#include "backends/sim/collective/flow_run.h"
#include "backends/sim/collective/member_ports.h"
#include "backends/sim/collective/plan.h"
#include "backends/sim/collective/tree_shape.h"

namespace moetwin {
namespace {

// One of the two trees over nodes: an in-order binary tree, and its mirror image (even number of
// nodes) or the same shifted by one (odd), so that most nodes are inner in one tree and leaves in
// the other.
int64_t parent_node(int64_t node, int64_t nodes, int tree) {
  const auto turned = [&](int64_t v) {
    return tree == 0 ? v : nodes % 2 == 0 ? nodes - 1 - v : (v + nodes - 1) % nodes;
  };
  const auto back = [&](int64_t v) {
    return tree == 0 ? v : nodes % 2 == 0 ? nodes - 1 - v : (v + 1) % nodes;
  };
  const int64_t v = turned(node);
  if (v == 0) return -1;
  const int64_t bit = v & -v;
  int64_t up = (v ^ bit) | (bit << 1);
  if (up >= nodes) up = v ^ bit;
  return back(up);
}

double levels(int64_t n) { return n <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(n - 1)); }

Work steps_of_tree(const NodesOfGroup& on) {
  Work work;
  work.nic_steps = 2 * levels(on.nodes);
  work.nvlink_steps = 2 * static_cast<double>(on.most - 1);
  return work;
}

MemberPorts tree_ports(const CollectiveShape& shape, const Machine& machine) {
  const double bytes = bytes_of_tree(shape);
  MemberPorts ports(shape, machine);
  each_tree(*shape.on, [&](const std::vector<int64_t>& up) {
    for (size_t i = 0; i < up.size(); ++i) {
      if (up[i] < 0) continue;
      ports.pass(static_cast<int64_t>(i), up[i], bytes);
      ports.pass(up[i], static_cast<int64_t>(i), bytes);
    }
  });
  return ports;
}

}  // namespace

int64_t tree_channels(const NodesOfGroup& on) { return on.nodes > 1 ? on.fewest : 1; }

double bytes_of_tree(const CollectiveShape& shape) {
  return shape.bytes / static_cast<double>(2 * tree_channels(*shape.on));
}

std::vector<std::vector<int64_t>> members_by_node(const NodesOfGroup& on) {
  std::vector<std::vector<int64_t>> members(static_cast<size_t>(on.nodes));
  for (size_t i = 0; i < on.node_index.size(); ++i)
    members[static_cast<size_t>(on.node_index[i])].push_back(static_cast<int64_t>(i));
  return members;
}

std::vector<int64_t> parents_between(const NodesOfGroup& on,
                                     const std::vector<std::vector<int64_t>>& members,
                                     int64_t channel, int tree) {
  const auto head = [&](int64_t node) {
    const auto& here = members[static_cast<size_t>(node)];
    return here[static_cast<size_t>(channel % static_cast<int64_t>(here.size()))];
  };
  std::vector<int64_t> up(on.node_index.size(), -1);
  for (int64_t node = 0; node < on.nodes; ++node)
    if (const int64_t above = parent_node(node, on.nodes, tree); above >= 0)
      up[static_cast<size_t>(head(node))] = head(above);
  return up;
}

void each_tree(const NodesOfGroup& on,
               const std::function<void(const std::vector<int64_t>& parents)>& each) {
  const auto members = members_by_node(on);
  for (int64_t channel = 0; channel < tree_channels(on); ++channel)
    for (int tree = 0; tree < 2; ++tree) {
      std::vector<int64_t> up = parents_between(on, members, channel, tree);
      for (const std::vector<int64_t>& here : members) {
        const size_t size = here.size(), first = static_cast<size_t>(channel) % size;
        for (size_t p = 1; p < size; ++p)
          up[static_cast<size_t>(here[(first + p) % size])] = here[(first + p - 1) % size];
      }
      each(up);
    }
}

Work tree_work(const CollectiveShape& shape, const Machine& machine) {
  Work work = steps_of_tree(*shape.on);
  tree_ports(shape, machine).busiest(work);
  return work;
}

void plan_tree(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  const MemberPorts ports = tree_ports(shape, machine);
  ports.emit(plan);
  ports.count_sent(plan);
  plan.latency = path_of(steps_of_tree(*shape.on), plan.figures, machine);
}

void flow_tree(const CollectiveShape& shape, const Machine& machine, const ProtocolFigures& figures,
               FlowRun& run) {
  const double bytes = bytes_of_tree(shape);
  const double way = path_of(steps_of_tree(*shape.on), figures, machine).value / 2;
  each_tree(*shape.on, [&](const std::vector<int64_t>& parents) {
    Flows up, down;
    for (size_t i = 0; i < parents.size(); ++i) {
      if (parents[i] < 0) continue;
      const int64_t low = shape.group.member(static_cast<int64_t>(i));
      const int64_t high = shape.group.member(parents[i]);
      const double taken_up = Hop(figures, machine, low, high).taken_up(bytes);
      up.push_back({low, high, taken_up});
      down.push_back({high, low, taken_up});
    }
    run.spawn([&run, up, down, way] {
      for (const Flows* flows : {&up, &down}) {  // cut so fine that all edges carry at once
        run.sleep(way);
        run.send_all(*flows);
      }
    });
  });
}

void plan_barrier(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  plan.algorithm = Algorithm::tree;
  plan.latency = path_of(steps_of_tree(*shape.on), plan.figures, machine);
}

}  // namespace moetwin
