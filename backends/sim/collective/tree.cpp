#include <bit>

#include "backends/sim/collective/flow_run.h"
#include "backends/sim/collective/plan.h"
#include "backends/sim/collective/port_sums.h"

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

// Parent of every member as group ranks, -1 for the root: a chain inside each node that starts at
// member `channel` of the node, and the tree over those heads.
std::vector<int64_t> parents(const NodesOfGroup& on, int64_t channel, int tree) {
  const size_t n = on.node_index.size();
  std::vector<std::vector<int64_t>> members(static_cast<size_t>(on.nodes));
  for (size_t i = 0; i < n; ++i)
    members[static_cast<size_t>(on.node_index[i])].push_back(static_cast<int64_t>(i));
  const auto member = [&](int64_t node, int64_t place) {
    const auto& here = members[static_cast<size_t>(node)];
    return here[static_cast<size_t>((channel + place) % static_cast<int64_t>(here.size()))];
  };
  std::vector<int64_t> up(n, -1);
  for (int64_t node = 0; node < on.nodes; ++node) {
    const int64_t above = parent_node(node, on.nodes, tree);
    if (above >= 0) up[static_cast<size_t>(member(node, 0))] = member(above, 0);
    for (int64_t p = 1; p < on.members_on[static_cast<size_t>(node)]; ++p)
      up[static_cast<size_t>(member(node, p))] = member(node, p - 1);
  }
  return up;
}

int64_t channels_of(const NodesOfGroup& on) { return on.nodes > 1 ? on.fewest : 1; }

double levels(int64_t n) { return n <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(n - 1)); }

Seconds tree_latency(const NodesOfGroup& on, const Machine& machine, Bytes piece) {
  const auto hop = [&](const LinkProfile& link) { return link.latency + piece / link.effective(); };
  return hop(machine.profile().nic) * (2 * levels(on.nodes)) +
         hop(machine.profile().nvlink) * (2 * static_cast<double>(on.most - 1));
}

}  // namespace

void plan_tree(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  const NodesOfGroup& on = *shape.on;
  const int64_t channels = channels_of(on);
  const double bytes = shape.bytes / static_cast<double>(2 * channels);  // of one tree
  plan.algorithm = Algorithm::tree;
  PortSums ports(plan.ports);
  std::vector<int64_t> route;
  for (int64_t channel = 0; channel < channels; ++channel)
    for (int tree = 0; tree < 2; ++tree) {
      const std::vector<int64_t> up = parents(on, channel, tree);
      for (size_t i = 0; i < up.size(); ++i) {
        if (up[i] < 0) continue;
        const int64_t low = shape.group.member(static_cast<int64_t>(i));
        const int64_t high = shape.group.member(up[i]);
        const auto pass = [&](int64_t from, int64_t to, size_t member) {
          machine.route(from, to, route);
          for (int64_t port : route) ports.add(port, bytes);
          plan.sent[member] += bytes;
          if (!machine.same_node(from, to)) plan.sent_off_node[member] += bytes;
        };
        pass(low, high, i);
        pass(high, low, static_cast<size_t>(up[i]));
      }
    }
  ports.finish();
  // The first piece's way up and down. Between nodes, short messages have left the way up before
  // they come down, so only half of the busiest port's bytes come after it.
  const Seconds path = tree_latency(on, machine, Bytes(bytes / kPieces));
  plan.latency = on.nodes > 1 ? std::max(path - plan.alone(machine) / 2, path / 2) : path;
}

void flow_tree(const CollectiveShape& shape, const Machine& machine, FlowRun& run) {
  const NodesOfGroup& on = *shape.on;
  const int64_t channels = channels_of(on);
  const double piece = shape.bytes / static_cast<double>(2 * channels) / kPieces;
  using Signals = std::vector<std::shared_ptr<FlowSignal>>;
  for (int64_t channel = 0; channel < channels; ++channel)
    for (int tree = 0; tree < 2; ++tree) {
      const std::vector<int64_t> up = parents(on, channel, tree);
      const size_t n = up.size();
      std::vector<Signals> from_below(n), to_below(n);  // one signal per child
      Signals reduced(n);                               // at the parent, from child i
      for (size_t i = 0; i < n; ++i) {
        if (up[i] < 0) continue;
        reduced[i] = run.signal();
        from_below[static_cast<size_t>(up[i])].push_back(reduced[i]);
        to_below[static_cast<size_t>(up[i])].push_back(run.signal());
      }
      std::vector<size_t> next_child(n);
      for (size_t i = 0; i < n; ++i) {
        const int64_t me = shape.group.member(static_cast<int64_t>(i));
        if (up[i] < 0) {  // the root turns every piece round
          run.spawn([&run, in = from_below[i], out = to_below[i]] {
            for (int k = 0; k < kPieces; ++k) {
              for (const auto& s : in) s->wait();
              for (const auto& s : out) s->post(run.now());
            }
          });
          continue;
        }
        const int64_t parent = shape.group.member(up[i]);
        const double latency = machine.latency(me, parent).value;
        run.spawn([&run, me, parent, latency, piece, in = from_below[i], out = reduced[i]] {
          for (int k = 0; k < kPieces; ++k) {
            for (const auto& s : in) s->wait();
            run.send(me, parent, piece);
            out->post(run.now() + latency);
          }
        });
        const auto above = static_cast<size_t>(up[i]);
        run.spawn([&run, me, parent, latency, piece, in = to_below[above][next_child[above]++],
                   out = to_below[i], end = run.signal()] {
          for (int k = 0; k < kPieces; ++k) {
            in->wait();
            run.send(parent, me, piece);
            for (const auto& s : out) s->post(run.now() + latency);
            end->post(run.now() + latency);
          }
          for (int k = 0; k < kPieces; ++k) end->wait();
        });
      }
    }
}

void plan_barrier(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  plan.algorithm = Algorithm::tree;
  plan.latency = tree_latency(*shape.on, machine, Bytes(0));
}

}  // namespace moetwin
