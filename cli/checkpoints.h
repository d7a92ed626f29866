#pragma once
// Checkpoints of a run as the command line sees them: where to go on from, and where to save.

#include <functional>
#include <memory>
#include <string>

#include "cli/machines.h"
#include "core/train/checkpoint/checkpoint.h"
#include "core/train/checkpoint/writer.h"

namespace moetwin {

/// The checkpoint that --resume PATH means; null where `path` is empty. Every element is checked.
std::unique_ptr<Checkpoint> open_resume(const std::string& path);

/// The one that --weights PATH means, without what it says of its training. Every element is
/// checked.
std::unique_ptr<Checkpoint> open_weights(const std::string& path);

/// The scenario that a checkpoint was saved with, with other values for some keys.
Scenario scenario_of(const Checkpoint& checkpoint, const std::vector<std::string>& overrides,
                     std::vector<std::string>* warnings);

/// While the cluster runs, once per process: all save where the first does. Throws
/// Error(configuration) when the processes of a job go on from different checkpoints.
void agree(const Checkpoint* resumed, CheckpointWriter* writer, const RunMachine& machine);

/// What saves the ranks of this process into `directory`, with the bytes it sends by `post`; null
/// with numerics none.
std::unique_ptr<CheckpointWriter> make_checkpoint_writer(
    const Scenario& scenario, const RunMachine& machine, const std::string& run_directory,
    FileOperations& files, const Checkpoint* resumed,
    std::function<std::pair<double, int64_t>(int64_t)> best_validation,
    std::function<void(const std::string&)> post);

}  // namespace moetwin
