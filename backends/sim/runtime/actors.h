#pragma once
// All that is asked of SimGrid: one actor per rank that can block and be woken, the clock, and
// pooled helpers that carry a collective from its start to its end.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backends/sim/cluster/machine.h"
#include "backends/sim/collective/plan.h"

namespace moetwin {

enum class Fidelity : uint8_t { fluid, flow };

/// A collective under way.
struct Transfer {
  double start = 0;  ///< seconds of the clock, not before now
  const CollectiveShape* shape = nullptr;
  const Plan* plan = nullptr;
  /// Called on the helper at the end.
  std::function<void(double end)> done;
};

class Actors {
 public:
  struct Settings {
    Fidelity fidelity = Fidelity::fluid;
    NcclChoice choice;
    std::string context_factory;
    int64_t stack_bytes = 1 << 20;
  };
  Actors(const Machine& machine, Settings settings);
  ~Actors();
  Actors(const Actors&) = delete;
  Actors& operator=(const Actors&) = delete;

  /// Runs `body(rank)` on one actor per rank until all have ended, and beside them `body(world +
  /// i)` for i below `beside`, which need not end. `deadlock` is called when none can go on; they
  /// are killed after it. `failed` is called with an exception that left a body or a helper; it
  /// should call kill_others().
  void run(const std::function<void(int64_t)>& body, int64_t beside,
           const std::function<void()>& deadlock,
           const std::function<void(std::exception_ptr)>& failed);

  // What follows is called from actors, which are named by what their body was given.
  /// Waits for wake(actor), or returns at once when it has come already.
  void block(int64_t actor);
  void wake(int64_t actor);
  void carry(Transfer transfer);
  double clock() const;
  void kill_others();

  /// One line for reports: the settings of SimGrid that change results.
  static std::string description(Fidelity fidelity);

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace moetwin
