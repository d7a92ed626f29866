#pragma once
// Writes checkpoints: takes what every rank hands in, gives it names, and makes it durable in an
// order in which a crash at any moment leaves a whole checkpoint behind.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/scenario/scenario.h"
#include "core/train/checkpoint/file_operations.h"
#include "core/train/checkpoint/manifest.h"
#include "core/train/checkpoint/save.h"

namespace moetwin {

struct CheckpointSetup {
  std::string directory;  ///< checkpoint.directory, resolved
  CheckpointConfig config;
  std::string optimizer;
  Json::Value scenario;  ///< scenario_to_json
  std::string scenario_path;
  int64_t world = 1;
  int64_t local_ranks = 1;  ///< of this process
  bool is_first = true;     ///< this process writes the manifest
  /// To the first process, whose receive() gets it. Null where all ranks are in one process.
  std::function<void(const std::string&)> post;
  /// In the first process: the best validation loss so far and its step.
  std::function<void(TrainingPosition&)> fill_best;
  double timeout_seconds = 30;  ///< for what other processes post
};

class CheckpointWriter {
 public:
  CheckpointWriter(CheckpointSetup setup, FileOperations& files);
  /// Waits for a save under way; what goes wrong in it is lost.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Before the first save: where this process of a job saves.
  void set_directory(const std::string& directory) { setup_.directory = directory; }
  const std::string& directory() const { return setup_.directory; }
  /// Throws Error(configuration) when the directory has checkpoints beyond `step`, where this run
  /// begins: they would be mixed with its own.
  void check_start(int64_t step) const;
  /// From any thread; the last rank of the process writes, or starts the writing. Waits for the
  /// save before. Throws Error(fault) when something of this save, or of an asynchronous one
  /// before, cannot be written.
  void add(RankState state);
  /// Called once by every local rank at the end: the last waits for what is under way and throws
  /// what went wrong in it.
  void end_of_run();
  /// What another process posted.
  void receive(const std::string& bytes);

  const CheckpointConfig& config() const { return setup_.config; }
  /// The newest one that is complete; empty: none yet.
  std::string newest() const;

 private:
  void write(std::vector<RankState> states);
  void take(SavePart part);
  void publish(SavePart& whole);
  void wait_for_thread();
  std::string step_directory(int64_t step) const;
  void remove_checkpoint(const std::string& directory);
  void prune(int64_t step);

  CheckpointSetup setup_;
  FileOperations& files_;
  mutable std::mutex mutex_;  ///< ranks, ended_, pending_, failure_, newest_
  std::mutex writing_;        ///< one save at a time
  std::vector<RankState> ranks_;
  int64_t ended_ = 0;
  std::map<int64_t, SavePart> pending_;  ///< by step, until all ranks are in
  std::condition_variable published_;
  std::exception_ptr failure_;
  std::string newest_;
  std::thread thread_;
};

}  // namespace moetwin
