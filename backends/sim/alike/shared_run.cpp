#include "backends/sim/alike/shared_run.h"

#include <map>

#include "backends/sim/alike/player.h"
#include "backends/sim/alike/scribe.h"
#include "backends/sim/runtime/sim_backend.h"
#include "core/train/train.h"

namespace moetwin {
namespace {

class SharedRun {
 public:
  SharedRun(Simulation& simulation, const Scenario& scenario, const Grid& grid,
            const AlikeRanks& alike, const TrainerServices& services,
            const std::function<void()>& begun, const TapeReader& reader)
      : simulation_(simulation),
        scenario_(scenario),
        grid_(grid),
        alike_(alike),
        services_(services),
        begun_(begun),
        reader_(reader),
        leaders_(alike.leaders()),
        exchange_(
            alike, [this](int64_t leader) { actors().block(actor_of(leader)); },
            [this](int64_t leader) { actors().wake(actor_of(leader)); }) {
    for (size_t i = 0; i < leaders_.size(); ++i) {
      programs_.emplace_back(alike.sharing(leaders_[i]));
      number_[leaders_[i]] = i;
    }
  }

  void run() {
    simulation_.run(
        [this](int64_t actor) {
          if (actor < world())
            play(actor);
          else
            write(static_cast<size_t>(actor - world()));
        },
        static_cast<int64_t>(leaders_.size()));
  }

 private:
  struct Program {
    explicit Program(int64_t readers) : tape(readers) {}
    Tape tape;
    std::vector<int64_t> waiting;  ///< ranks that have read all there is
  };

  Actors& actors() { return simulation_.actors(); }
  int64_t world() const { return grid_.world(); }
  int64_t actor_of(int64_t leader) const {
    return world() + static_cast<int64_t>(number_.at(leader));
  }

  /// A scribe's actor.
  void write(size_t number) {
    Program& program = programs_[number];
    const auto tell = [&] {
      const std::vector<int64_t> waiting = std::move(program.waiting);
      program.waiting.clear();
      for (const int64_t rank : waiting) actors().wake(rank);
    };
    Scribe scribe(simulation_, leaders_[number], exchange_, program.tape, services_.recorder, [&] {
      if (reader_) reader_(leaders_[number], program.tape.segment(program.tape.closed() - 1));
      tell();
      while (program.tape.closed() >= wanted_)
        actors().block(world() + static_cast<int64_t>(number));
    });
    TrainerServices services = services_;
    services.recorder = &scribe;
    services.stop_after = nullptr;
    train_rank(scribe, scenario_, grid_, services);
    scribe.finish();
    tell();
  }

  /// A rank's actor.
  void play(int64_t rank) {
    if (rank == 0 && begun_) begun_();
    const int64_t leader = alike_.leader(rank);
    Program& program = programs_[number_.at(leader)];
    SimBackend& device = *simulation_.backends()[static_cast<size_t>(rank)];
    Player player(device, leader, scenario_, grid_, services_.recorder);
    const int64_t steps = scenario_.training_config.steps;
    for (int64_t number = 0;; ++number) {
      while (number >= program.tape.closed()) {
        program.waiting.push_back(rank);
        ask(number + 1);
        actors().block(rank);
      }
      player.play(program.tape.segment(number));
      program.tape.leave(number);
      if (program.tape.ended() && number + 1 == program.tape.closed()) break;
      if (player.step() > 0 && player.step() < steps && services_.stop_after &&
          services_.stop_after(player.step()))
        break;
    }
    device.finish();
  }

  /// Every scribe goes on until it has closed that many: they need each other.
  void ask(int64_t segments) {
    if (segments <= wanted_) return;
    wanted_ = segments;
    for (size_t i = 0; i < leaders_.size(); ++i)
      if (!programs_[i].tape.ended()) actors().wake(world() + static_cast<int64_t>(i));
  }

  Simulation& simulation_;
  const Scenario& scenario_;
  const Grid& grid_;
  const AlikeRanks& alike_;
  const TrainerServices& services_;
  const std::function<void()>& begun_;
  const TapeReader& reader_;
  std::vector<int64_t> leaders_;
  std::map<int64_t, size_t> number_;  ///< of a leader's program
  std::vector<Program> programs_;
  ScribeExchange exchange_;
  int64_t wanted_ = 1;  ///< segments of every tape
};

}  // namespace

void run_shared(Simulation& simulation, const Scenario& scenario, const Grid& grid,
                const AlikeRanks& alike, const TrainerServices& services,
                const std::function<void()>& begun, const TapeReader& reader) {
  SharedRun(simulation, scenario, grid, alike, services, begun, reader).run();
}

}  // namespace moetwin
