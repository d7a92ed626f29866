#include "backends/sim/runtime/simulation.h"

#include <malloc.h>

#include <limits>
#include <simgrid/s4u/Engine.hpp>

#include "backends/sim/runtime/sim_backend.h"
#include "core/base/error.h"

namespace moetwin {

Simulation::Simulation(const Machine& machine, Settings settings, const SimOptions& options)
    : machine_(machine),
      settings_(settings),
      corrections_(machine.profile().corrections),
      options_(options),
      actors_(machine,
              {settings.fidelity, settings.choice, options.context_factory, options.stack_bytes}),
      rendezvous_(*this) {
  for (int64_t rank = 0; rank < machine.world(); ++rank)
    backends_.push_back(std::make_unique<SimBackend>(*this, rank));
  if (options_.time_passes)
    simgrid::s4u::Engine::on_time_advance_cb(
        [this](double) { options_.time_passes(simgrid::s4u::Engine::get_clock()); });
}

Simulation::~Simulation() = default;

void Simulation::run(const std::function<void(Backend&)>& program) {
  run(
      [&](int64_t rank) {
        SimBackend& backend = *backends_[static_cast<size_t>(rank)];
        if (options_.wrap) {
          const std::unique_ptr<Backend> wrapped = options_.wrap(backend);
          program(*wrapped);
        } else {
          program(backend);
        }
        backend.finish();
      },
      0);
}

void Simulation::run(const std::function<void(int64_t)>& body, int64_t beside) {
  if (settings_.numerics) {
    // Large buffers are made and freed all the time: take them from the heap and keep its pages.
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  }
  tasks_ = std::make_unique<TaskGraph>(settings_.numerics ? std::max(1, options_.threads) : 0);
  const auto deadlock = [this] {
    if (!error_)
      error_ = std::make_exception_ptr(Error(ErrorClass::deadlock, describe_deadlock(*this)));
  };
  actors_.run(body, beside, deadlock, [this](std::exception_ptr error) { fail(error); });
  if (!error_) {
    try {
      tasks_->join_all();
    } catch (...) {  // thrown again below
      error_ = std::current_exception();
    }
  }
  tasks_->stop();
  if (error_) std::rethrow_exception(error_);
}

void Simulation::fail(std::exception_ptr error) {
  if (!error_) error_ = error;
  actors_.kill_others();
}

Reference Simulation::reference(const Op& op) {
  const auto index = static_cast<size_t>(op.index);
  if (index >= references_.size()) references_.resize(index + 1);
  Known& known = references_[index];
  if (known.op != &op) known = {&op, options_.references ? options_.references(op) : nullptr};
  return known.reference;
}

void Simulation::all_arrived(Collective* collective) {
  if (collective->plan.empty()) {
    collective->end = collective->start;
    ended_.push_back(collective);
  } else {
    to_start_.push_back(collective);
  }
}

void Simulation::settle() {
  while (!ended_.empty()) {
    Collective* collective = ended_.front();
    ended_.pop_front();
    for (const Collective::Member& member : collective->members)
      member.backend->complete(member.stream, *collective);
    rendezvous_.give_back(collective);
  }
  // From here on other actors may run and come through here too.
  while (!to_start_.empty()) {
    Collective* collective = to_start_.front();
    to_start_.pop_front();
    Transfer transfer;
    transfer.start = collective->start;
    transfer.shape = &collective->shape;
    transfer.plan = &collective->plan;
    transfer.done = [this, collective](double end) {
      collective->end = end;
      ended_.push_back(collective);
      settle();
    };
    actors_.carry(std::move(transfer));
  }
  while (!to_wake_.empty()) {
    const int64_t rank = to_wake_.front();
    to_wake_.pop_front();
    actors_.wake(rank);
  }
}

}  // namespace moetwin
