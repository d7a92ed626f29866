#include "backends/sim/runtime/actors.h"

#include <fmt/format.h>

#include <simgrid/s4u.hpp>
#include <vector>

#include "backends/sim/runtime/network.h"
#include "core/base/error.h"

namespace moetwin {

namespace s4u = simgrid::s4u;

namespace {
struct Helper {
  s4u::SemaphorePtr work = s4u::Semaphore::create(0);
  Transfer transfer;
};
}  // namespace

struct Actors::Inside {
  const Machine& machine;
  Settings settings;
  s4u::Host* control = nullptr;
  std::unique_ptr<Network> network;
  std::vector<s4u::SemaphorePtr> wakes;
  std::vector<std::unique_ptr<Helper>> helpers;
  std::vector<Helper*> idle;
  std::function<void(std::exception_ptr)> failed;

  Inside(const Machine& m, Settings s) : machine(m), settings(std::move(s)) {}
  // An exception that leaves an actor ends the process, so none does, except SimGrid's own on a
  // kill.
  void guarded(const std::function<void()>& body) {
    std::exception_ptr error;
    try {
      body();
    } catch (const simgrid::ForcefulKillException&) {
      throw;
    } catch (...) {
      error = std::current_exception();
    }
    if (error) failed(error);  // outside of the handler: it lets other actors run
  }
  void help(Helper& helper) {
    for (;;) {
      helper.work->acquire();
      const Transfer transfer = std::move(helper.transfer);
      s4u::this_actor::sleep_until(transfer.start);
      const double end = network->pass(transfer);
      idle.push_back(&helper);
      transfer.done(std::max(transfer.start, end));
    }
  }
};

Actors::Actors(const Machine& machine, Settings settings)
    : inside_(std::make_unique<Inside>(machine, std::move(settings))) {}

Actors::~Actors() = default;

void Actors::run(const std::function<void(int64_t)>& body, int64_t beside,
                 const std::function<void()>& deadlock,
                 const std::function<void(std::exception_ptr)>& failed) {
  if (s4u::Engine::is_initialized())
    throw Error(ErrorClass::internal,
                "internal error: a second simulation in one process: SimGrid keeps one clock per "
                "process; fork one process per simulation");
  std::vector<std::string> words{
      "moetwin", "--log=root.thres:critical", "--log=root.fmt:%m%n",
      // Deadlocks are told by us.
      "--log=ker_engine.app:file:/dev/null", "--log=ker_engine.add:0", "--cfg=network/model:CM02",
      "--cfg=network/crosstraffic:0", "--cfg=network/TCP-gamma:1e12", "--cfg=network/weight-S:0",
      "--cfg=contexts/guard-size:0",
      fmt::format("--cfg=contexts/stack-size:{}", inside_->settings.stack_bytes / 1024)};
  std::string factory = inside_->settings.context_factory;
#if defined(__SANITIZE_ADDRESS__)
  // AddressSanitizer cannot follow SimGrid's own switching of stacks.
  if (factory.empty()) factory = "thread";
#endif
  if (!factory.empty()) words.push_back("--cfg=contexts/factory:" + factory);
  std::vector<char*> arguments;
  for (std::string& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  int count = static_cast<int>(words.size());
  // Never deleted: SimGrid points to it as long as the process lives, so that is_initialized()
  // above goes on telling the truth.
  auto* engine = new s4u::Engine(&count, arguments.data());
  s4u::Engine::on_deadlock_cb(deadlock);

  const bool paired = inside_->settings.fidelity == Fidelity::flow &&
                      inside_->machine.fabric_links() > 0;  // routes are pairs'
  auto* zone = paired ? s4u::create_full_zone("cluster") : s4u::create_star_zone("cluster");
  inside_->control = zone->create_host("control", 1e9);
  inside_->network =
      inside_->settings.fidelity == Fidelity::fluid
          ? make_fluid_network(inside_->machine)
          : make_flow_network(inside_->machine, inside_->settings.choice, zone, inside_->control);
  zone->seal();
  inside_->failed = failed;
  const int64_t world = inside_->machine.world();
  for (int64_t i = 0; i < world + beside; ++i) inside_->wakes.push_back(s4u::Semaphore::create(0));
  for (int64_t i = 0; i < world + beside; ++i) {
    const auto actor =
        s4u::Actor::create(i < world ? fmt::format("rank {}", i) : "beside", inside_->control,
                           [this, i, &body] { inside_->guarded([&] { body(i); }); });
    if (i >= world) actor->daemonize();
  }
  engine->run();
  inside_->idle.clear();
  inside_->helpers.clear();
  inside_->wakes.clear();
}

void Actors::block(int64_t actor) { inside_->wakes[static_cast<size_t>(actor)]->acquire(); }
void Actors::wake(int64_t actor) { inside_->wakes[static_cast<size_t>(actor)]->release(); }
double Actors::clock() const { return s4u::Engine::get_clock(); }
void Actors::kill_others() { s4u::Actor::kill_all(); }

void Actors::carry(Transfer transfer) {
  if (inside_->idle.empty()) {
    inside_->helpers.push_back(std::make_unique<Helper>());
    Helper* helper = inside_->helpers.back().get();
    helper->transfer = std::move(transfer);
    Inside* inside = inside_.get();
    s4u::Actor::create("helper", inside_->control, [inside, helper] {
      inside->guarded([&] { inside->help(*helper); });
    })->daemonize();
    helper->work->release();
    return;
  }
  Helper* helper = inside_->idle.back();
  inside_->idle.pop_back();
  helper->transfer = std::move(transfer);
  helper->work->release();
}

std::string Actors::description(Fidelity fidelity) {
  return fmt::format(
      "SimGrid {}, {} network, CM02 without cross-traffic, TCP window bound off "
      "(network/TCP-gamma 1e12)",
      SIMGRID_VERSION_TEXT, fidelity == Fidelity::fluid ? "fluid" : "flow");
}

}  // namespace moetwin
