#include "core/train/checkpoint/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "core/base/error.h"
#include "core/train/checkpoint/checkpoint.h"
#include "core/train/checkpoint/save.h"

namespace moetwin {

namespace fs = std::filesystem;

CheckpointWriter::CheckpointWriter(CheckpointSetup setup, FileOperations& files)
    : setup_(std::move(setup)), files_(files) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

std::string CheckpointWriter::step_directory(int64_t step) const {
  return setup_.directory + "/" + checkpoint_name(step);
}

void CheckpointWriter::check_start(int64_t step) const {
  const auto there = complete_checkpoints(setup_.directory);
  if (there.empty() || there.rbegin()->first <= step) return;
  throw Error(
      ErrorClass::configuration,
      fmt::format(
          "checkpoint.directory {}: has a checkpoint of step {}, and this run begins at step "
          "{}; legal: --resume {}, another directory, or taking the newer ones away",
          setup_.directory, there.rbegin()->first, step, there.rbegin()->second));
}

std::string CheckpointWriter::newest() const {
  const std::lock_guard lock(mutex_);
  return newest_;
}

void CheckpointWriter::wait_for_thread() {
  if (thread_.joinable()) thread_.join();
  std::exception_ptr failure;
  {
    const std::lock_guard lock(mutex_);
    failure = std::exchange(failure_, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

void CheckpointWriter::add(RankState state) {
  std::vector<RankState> states;
  {
    const std::lock_guard lock(mutex_);
    require(ranks_.empty() || ranks_.front().position.step == state.position.step,
            "ranks save the same steps");
    ranks_.push_back(std::move(state));
    if (static_cast<int64_t>(ranks_.size()) < setup_.local_ranks) return;
    states.swap(ranks_);
  }
  std::sort(states.begin(), states.end(),
            [](const RankState& a, const RankState& b) { return a.rank < b.rank; });
  wait_for_thread();
  if (!setup_.config.async) return write(std::move(states));
  thread_ = std::thread([this, states = std::move(states)]() mutable {
    try {
      write(std::move(states));
    } catch (...) {
      // Thrown again by the next save or at the end of the run.
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      pending_.clear();
      published_.notify_all();
    }
  });
}

void CheckpointWriter::write(std::vector<RankState> states) {
  const int64_t step = states.front().position.step;
  const std::string directory = step_directory(step);
  files_.make_directory(directory);
  SavePart part;
  part.position = states.front().position;
  for (RankState& state : states) {
    ++part.ranks;
    if (setup_.config.type == "full") {
      for (OwnedPart& owned : state.parts) part.owned.push_back(std::move(owned));
    } else {
      write_shard(files_, directory, shard_name(state.rank, setup_.world), state, part);
    }
    state.parts.clear();
  }
  if (setup_.config.type != "full") files_.sync_directory(directory);
  if (setup_.is_first) {
    take(std::move(part));
  } else {
    setup_.post(part.bytes());
  }
}

void CheckpointWriter::receive(const std::string& bytes) {
  try {
    take(SavePart::from_bytes(bytes));
  } catch (...) {
    // The thread that receives has nobody to tell; the ranks here are told at their next save.
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    pending_.clear();
    published_.notify_all();
  }
}

void CheckpointWriter::take(SavePart part) {
  const std::lock_guard one_at_a_time(writing_);
  const int64_t step = part.position.step;
  SavePart whole;
  {
    const std::lock_guard lock(mutex_);
    SavePart& pending = pending_[step];
    pending.join(std::move(part));
    if (pending.ranks < setup_.world) return;
    whole = pending;
  }
  // Under way until it is published or has failed.
  const auto over = [&](const std::string& newest) {
    const std::lock_guard lock(mutex_);
    pending_.erase(step);
    if (!newest.empty()) newest_ = newest;
    published_.notify_all();
  };
  try {
    publish(whole);
  } catch (...) {
    over("");
    throw;
  }
  over(step_directory(step));
}

void CheckpointWriter::publish(SavePart& whole) {
  const std::string directory = step_directory(whole.position.step);
  if (setup_.config.type == "full") {
    write_full(files_, directory, whole);
    files_.sync_directory(directory);
  }
  Manifest manifest;
  manifest.type = setup_.config.type;
  manifest.optimizer = setup_.optimizer;
  manifest.position = whole.position;
  if (setup_.fill_best) setup_.fill_best(manifest.position);
  manifest.scenario = setup_.scenario;
  manifest.scenario_path = setup_.scenario_path;
  manifest.files = std::move(whole.files);
  manifest.tensors = std::move(whole.tensors);
  // Its name appears when all else is on the disk, and nothing older goes before it is, too.
  const std::string path = directory + "/" + kManifestName;
  write_file(files_, path + ".part", {manifest_text(manifest)});
  files_.rename(path + ".part", path);
  files_.sync_directory(directory);
  files_.sync_directory(setup_.directory);
  prune(whole.position.step);
}

void CheckpointWriter::prune(int64_t step) {
  auto there = complete_checkpoints(setup_.directory);
  const auto keep = static_cast<size_t>(setup_.config.keep_last);
  while (keep > 0 && there.size() > keep) {
    remove_checkpoint(there.begin()->second);
    there.erase(there.begin());
  }
  // What a save or a removal that died has left.
  std::vector<std::string> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(setup_.directory)) {
    const std::string name = entry.path().filename().string();
    if (is_checkpoint_name(name) && name < checkpoint_name(step) &&
        !fs::exists(entry.path() / kManifestName))
      left.push_back(entry.path().string());
  }
  for (const std::string& directory : left) remove_checkpoint(directory);
}

void CheckpointWriter::remove_checkpoint(const std::string& directory) {
  // Without its manifest it is no checkpoint any more, however far this comes.
  const std::string manifest = directory + "/" + kManifestName;
  if (fs::exists(manifest)) {
    files_.remove(manifest);
    files_.sync_directory(directory);
  }
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().string());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) files_.remove(name);
  files_.remove(directory);
}

void CheckpointWriter::end_of_run() {
  {
    const std::lock_guard lock(mutex_);
    if (++ended_ < setup_.local_ranks) return;
  }
  wait_for_thread();
  std::unique_lock lock(mutex_);
  const bool all_in =
      published_.wait_for(lock, std::chrono::duration<double>(setup_.timeout_seconds),
                          [this] { return pending_.empty(); });
  if (!all_in)
    throw Error(ErrorClass::fault,
                fmt::format("checkpoint of step {}: only {} of {} ranks have handed in their part; "
                            "the one before it is whole",
                            pending_.begin()->first, pending_.begin()->second.ranks, setup_.world));
  lock.unlock();
  wait_for_thread();
}

}  // namespace moetwin
