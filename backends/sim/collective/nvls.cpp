#include <bit>

#include "backends/sim/collective/flow_run.h"
#include "backends/sim/collective/member_ports.h"
#include "backends/sim/collective/plan.h"
#include "backends/sim/collective/tree_shape.h"

namespace moetwin {
namespace {

Work steps_of_nvls(const NodesOfGroup& on) {
  Work work;
  work.nvlink_steps = on.most > 1 ? 2 : 0;
  work.nic_steps = on.nodes > 1 ? 2.0 * std::bit_width(static_cast<uint64_t>(on.nodes - 1)) : 0;
  return work;
}

/// In and out of each GPU: its own bytes for the switch to add up, and the sum; its part of them
/// once more.
double switched(const CollectiveShape& shape, size_t member) {
  const NodesOfGroup& on = *shape.on;
  const auto here = static_cast<double>(on.members_on[static_cast<size_t>(on.node_index[member])]);
  return here > 1 ? shape.bytes * (1 + 1 / here) : 0;
}

MemberPorts nvls_ports(const CollectiveShape& shape, const Machine& machine) {
  const NodesOfGroup& on = *shape.on;
  MemberPorts ports(shape, machine);
  for (size_t i = 0; i < on.node_index.size(); ++i)
    ports.nvlink_up[i] = ports.nvlink_down[i] = switched(shape, i);
  if (on.nodes == 1) return ports;
  const double bytes = bytes_of_tree(shape);
  const auto members = members_by_node(on);
  for (int64_t channel = 0; channel < tree_channels(on); ++channel)
    for (int tree = 0; tree < 2; ++tree) {
      const std::vector<int64_t> up = parents_between(on, members, channel, tree);
      for (size_t i = 0; i < up.size(); ++i) {
        if (up[i] < 0) continue;
        ports.pass(static_cast<int64_t>(i), up[i], bytes);
        ports.pass(up[i], static_cast<int64_t>(i), bytes);
      }
    }
  return ports;
}

}  // namespace

Work nvls_work(const CollectiveShape& shape, const Machine& machine) {
  Work work = steps_of_nvls(*shape.on);
  nvls_ports(shape, machine).busiest(work);
  return work;
}

void plan_nvls(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  const MemberPorts ports = nvls_ports(shape, machine);
  ports.emit(plan);
  ports.count_sent(plan);
  plan.latency = path_of(steps_of_nvls(*shape.on), plan.figures, machine);
}

void flow_nvls(const CollectiveShape& shape, const Machine& machine, const ProtocolFigures& figures,
               FlowRun& run) {
  const NodesOfGroup& on = *shape.on;
  const double way = path_of(steps_of_nvls(on), figures, machine).value;
  const auto members = members_by_node(on);
  Flows inside;  // into the switch and out of it: a flow to the next GPU passes the same ports
  for (const std::vector<int64_t>& here : members)
    for (size_t p = 0; here.size() > 1 && p < here.size(); ++p)
      inside.push_back({shape.group.member(here[p]),
                        shape.group.member(here[(p + 1) % here.size()]),
                        switched(shape, static_cast<size_t>(here[p])) / figures.nvlink_share});
  run.spawn([&run, inside, way] {
    run.sleep(way);
    run.send_all(inside);
  });
  if (on.nodes == 1) return;
  for (int64_t channel = 0; channel < tree_channels(on); ++channel)
    for (int tree = 0; tree < 2; ++tree) {
      Flows up, down;
      const std::vector<int64_t> parents = parents_between(on, members, channel, tree);
      for (size_t i = 0; i < parents.size(); ++i) {
        if (parents[i] < 0) continue;
        const int64_t low = shape.group.member(static_cast<int64_t>(i));
        const int64_t high = shape.group.member(parents[i]);
        const double taken_up = bytes_of_tree(shape) / figures.nic_share;
        up.push_back({low, high, taken_up});
        down.push_back({high, low, taken_up});
      }
      run.spawn([&run, up, down, way] {
        run.sleep(way / 2);
        run.send_all(up);
        run.sleep(way / 2);
        run.send_all(down);
      });
    }
}

}  // namespace moetwin
