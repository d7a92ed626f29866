#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <simgrid/kernel/ProfileBuilder.hpp>
#include <simgrid/s4u.hpp>

#include "backends/sim/collective/flow_run.h"
#include "backends/sim/runtime/network.h"

namespace moetwin {
namespace {

namespace s4u = simgrid::s4u;

class Signal : public FlowSignal {
 public:
  void post(double usable_from) override {
    usable_from_.push_back(usable_from);
    arrived_->release();
  }
  void wait() override {
    arrived_->acquire();
    const double from = usable_from_.front();
    usable_from_.pop_front();
    if (from > s4u::Engine::get_clock()) s4u::this_actor::sleep_until(from);
  }

 private:
  s4u::SemaphorePtr arrived_ = s4u::Semaphore::create(0);
  std::deque<double> usable_from_;
};

// Every rank is two SimGrid hosts: one on its node's switch, one on the fabric. Links have no
// latency: it is paid by whoever uses what arrived, so that successive pieces overlap in it, and so
// that all flows share a link equally (CM02 weighs shares by latency).
class Flow : public Network {
  static constexpr double kLost = 1;  ///< bytes per second; SimGrid knows no rate of 0

 public:
  Flow(const Machine& machine, const NcclChoice& choice, s4u::NetZone* zone, s4u::Host* control)
      : machine_(machine), choice_(choice), control_(control) {
    for (int64_t p = 0; p < machine.ports(); ++p) {
      links_.push_back(zone->create_link(machine.port_name(p), machine.bandwidth(p).value));
      std::string profile;  // SimGrid's: a line of time and rate for each change
      for (const RateChange& change : machine.changes_of_port(p))
        profile += fmt::format("{:.17g} {:.17g}\n", change.time,
                               std::max(kLost, machine.bandwidth(p).value * change.share));
      if (!profile.empty())
        links_.back()->set_bandwidth_profile(simgrid::kernel::profile::ProfileBuilder::from_string(
            machine.port_name(p) + "-faults", profile, -1));
    }
    for (int64_t rank = 0; rank < machine.world(); ++rank) {
      switch_side_.push_back(zone->create_host("switch-side" + std::to_string(rank), 1e9));
      fabric_side_.push_back(zone->create_host("fabric-side" + std::to_string(rank), 1e9));
    }
    if (machine.fabric_links() == 0)
      star(zone);
    else
      full(zone);
  }

  double pass(const Transfer& transfer) override;

  // sendto, not mailboxes: it needs no actor on either side. Its cost in SimGrid 3.32 grows with
  // the number of flows alive, which most_flow_members() keeps small.
  s4u::CommPtr start(int64_t from, int64_t to, double bytes) const {
    const auto& sides = machine_.same_node(from, to) ? switch_side_ : fabric_side_;
    return s4u::Comm::sendto_async(sides[static_cast<size_t>(from)], sides[static_cast<size_t>(to)],
                                   static_cast<uint64_t>(std::llround(bytes)));
  }
  s4u::Host* control() const { return control_; }

 private:
  s4u::LinkInRoute link(int64_t port) const {
    return s4u::LinkInRoute(links_[static_cast<size_t>(port)]);
  }
  /// Every route is its sender's way up and its receiver's way down.
  void star(s4u::NetZone* zone) const {
    for (int64_t rank = 0; rank < machine_.world(); ++rank) {
      const auto add = [&](s4u::Host* host, int64_t up, int64_t down) {
        zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {link(up)}, false);
        zone->add_route(nullptr, host->get_netpoint(), nullptr, nullptr, {link(down)}, false);
      };
      add(switch_side_[static_cast<size_t>(rank)], machine_.nvlink(rank, Direction::up),
          machine_.nvlink(rank, Direction::down));
      add(fabric_side_[static_cast<size_t>(rank)], machine_.nic(rank, Direction::up),
          machine_.nic(rank, Direction::down));
    }
  }
  /// What lies between depends on both.
  void full(s4u::NetZone* zone) const {
    std::vector<int64_t> route;
    for (int64_t from = 0; from < machine_.world(); ++from)
      for (int64_t to = 0; to < machine_.world(); ++to) {
        if (from == to) continue;
        machine_.route(from, to, route);
        std::vector<s4u::LinkInRoute> links;
        for (const int64_t port : route) links.push_back(link(port));
        const auto& sides = machine_.same_node(from, to) ? switch_side_ : fabric_side_;
        zone->add_route(sides[static_cast<size_t>(from)]->get_netpoint(),
                        sides[static_cast<size_t>(to)]->get_netpoint(), nullptr, nullptr, links,
                        false);
      }
  }

  const Machine& machine_;
  const NcclChoice choice_;
  s4u::Host* control_;
  std::vector<s4u::Link*> links_;
  std::vector<s4u::Host*> switch_side_, fabric_side_;
};

class Run : public FlowRun {
 public:
  explicit Run(const Flow& flow) : flow_(flow) {}
  void spawn(std::function<void()> script) override {
    actors_.push_back(s4u::Actor::create("flow", flow_.control(), std::move(script)));
  }
  std::shared_ptr<FlowSignal> signal() override { return std::make_shared<Signal>(); }
  void send(int64_t from, int64_t to, double bytes) override {
    flow_.start(from, to, bytes)->wait();
  }
  void send_all(const Flows& all) override {
    std::vector<s4u::CommPtr> flows;
    for (const FlowBytes& f : all) flows.push_back(flow_.start(f.from, f.to, f.bytes));
    for (const s4u::CommPtr& f : flows) f->wait();
  }
  void sleep(double seconds) override {
    if (seconds > 0) s4u::this_actor::sleep_for(seconds);
  }
  double now() const override { return s4u::Engine::get_clock(); }
  void join() {
    for (const s4u::ActorPtr& actor : actors_) actor->join();
  }

 private:
  const Flow& flow_;
  std::vector<s4u::ActorPtr> actors_;
};

double Flow::pass(const Transfer& transfer) {
  const CollectiveShape& shape = *transfer.shape;
  const Plan& plan = *transfer.plan;
  const ProtocolFigures& figures = plan.figures;
  const double begin = s4u::Engine::get_clock();
  Run run(*this);
  run.sleep(figures.start.value);
  switch (shape.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      (plan.algorithm == Algorithm::tree   ? flow_tree
       : plan.algorithm == Algorithm::nvls ? flow_nvls
                                           : flow_ring)(shape, machine_, figures, run);
      break;
    case CollectiveKind::broadcast:
      flow_broadcast(shape, machine_, figures, run);
      break;
    case CollectiveKind::all_to_all_v:
      flow_all_to_all(shape, machine_, way_of(shape, choice_), plan, run);
      break;
    case CollectiveKind::send:
    case CollectiveKind::recv:
      flow_send(shape, machine_, figures, run);
      break;
    case CollectiveKind::barrier:
      run.sleep((plan.latency - figures.start).value);
  }
  run.join();
  const double rest = begin + (plan.latency + plan.message).value - s4u::Engine::get_clock();
  if (rest > 0) s4u::this_actor::sleep_for(rest);
  return s4u::Engine::get_clock();
}

}  // namespace

std::unique_ptr<Network> make_flow_network(const Machine& machine, const NcclChoice& choice,
                                           s4u::NetZone* zone, s4u::Host* control) {
  return std::make_unique<Flow>(machine, choice, zone, control);
}

}  // namespace moetwin
