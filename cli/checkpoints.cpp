#include "cli/checkpoints.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/record/json_text.h"
#include "core/scenario/read.h"

namespace moetwin {

namespace fs = std::filesystem;

std::unique_ptr<Checkpoint> open_resume(const std::string& path) {
  if (path.empty()) return nullptr;
  auto checkpoint = std::make_unique<Checkpoint>(find_checkpoint(path, "--resume"));
  checkpoint->verify();
  return checkpoint;
}

std::unique_ptr<Checkpoint> open_weights(const std::string& path) {
  auto checkpoint = std::make_unique<Checkpoint>(find_checkpoint(path, "--weights"));
  checkpoint->verify();
  checkpoint->forget_training();
  return checkpoint;
}

Scenario scenario_of(const Checkpoint& checkpoint, const std::vector<std::string>& overrides,
                     std::vector<std::string>* warnings) {
  const Manifest& manifest = checkpoint.manifest();
  const fs::path path = manifest.scenario_path;
  const std::string name = path.empty() ? "resumed.json" : path.filename().string();
  return parse_scenario(json_text(manifest.scenario), name, overrides, warnings,
                        path.parent_path().string());
}

void agree(const Checkpoint* resumed, CheckpointWriter* writer, const RunMachine& machine) {
  const std::string mine =
      resumed ? fmt::format("{} of step {}", fs::path(resumed->directory()).filename().string(),
                            resumed->manifest().position.step)
              : "none";
  const std::vector<std::string> all =
      machine.gather(mine + "\n" + (writer ? writer->directory() : ""));
  for (const std::string& said : all) {
    const std::string theirs = said.substr(0, said.find('\n'));
    if (theirs != mine)
      throw Error(ErrorClass::configuration,
                  fmt::format("--resume: this process sees checkpoint {}, another one {}; legal: a "
                              "directory that is the same on all nodes",
                              mine, theirs));
  }
  if (writer) writer->set_directory(all.front().substr(all.front().find('\n') + 1));
}

std::unique_ptr<CheckpointWriter> make_checkpoint_writer(
    const Scenario& scenario, const RunMachine& machine, const std::string& run_directory,
    FileOperations& files, const Checkpoint* resumed,
    std::function<std::pair<double, int64_t>(int64_t)> best_validation,
    std::function<void(const std::string&)> post) {
  if (scenario.training_config.numerics != "full") return nullptr;
  CheckpointSetup setup;
  setup.directory = scenario.checkpoint.directory.empty() ? run_directory + "/checkpoints"
                                                          : scenario.checkpoint.directory;
  setup.config = scenario.checkpoint;
  setup.optimizer = scenario.training_config.optimizer;
  setup.scenario = scenario_to_json(scenario);
  if (!scenario.path.empty()) setup.scenario_path = fs::absolute(scenario.path).string();
  setup.world = scenario.distributed_config.world_size;
  setup.local_ranks = machine.local_ranks;
  setup.is_first = machine.is_first;
  setup.post = std::move(post);
  setup.timeout_seconds = scenario.distributed_config.timeout_seconds;
  const TrainingPosition before = resumed ? resumed->manifest().position : TrainingPosition{};
  if (best_validation)
    setup.fill_best = [best_validation, before](TrainingPosition& position) {
      const auto [loss, step] = best_validation(position.step);
      position.best_validation_loss = before.best_validation_loss;
      position.best_step = before.best_step;
      if (step > 0 && (before.best_step == 0 || loss < before.best_validation_loss)) {
        position.best_validation_loss = loss;
        position.best_step = step;
      }
    };
  auto writer = std::make_unique<CheckpointWriter>(std::move(setup), files);
  if (machine.is_first) writer->check_start(before.step);
  return writer;
}

}  // namespace moetwin
