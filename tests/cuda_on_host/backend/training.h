#pragma once
// Trains a scenario on the modelled cluster and on the emulated GPUs, and says where they part.

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/device/backend.h"
#include "core/record/rank_step.h"
#include "tests/support/train_run.h"

namespace moetwin::test {

/// A machine for train_in_child: made in the child.
using MakeCluster = std::function<std::unique_ptr<Cluster>(const Scenario&)>;
std::unique_ptr<Cluster> emulated_gpus(const Scenario& scenario);
std::unique_ptr<Cluster> modelled_gpus(const Scenario& scenario);

/// The same machines told that so many GPUs are on a node.
MakeCluster emulated_nodes(int64_t gpus_per_node);
MakeCluster modelled_nodes(int64_t gpus_per_node);

/// What each rank did in one step, in launch order: lines of op or collective with its group,
/// stream and bytes ("gemm@0 1024", "all_reduce[dense_dp]@1 64").
class OpList {
 public:
  explicit OpList(int64_t step) : step_(step) {}
  void see(const RankStep& step);
  std::string text() const;

 private:
  const int64_t step_;
  std::mutex mutex_;
  std::map<int64_t, std::string> by_rank_;
};

/// Trains on that machine; `text` of the result is the list of the last step's ops.
TrainResult train_with_ops(Scenario scenario, const MakeCluster& machine, bool tensors);

/// The first line that differs, with its number; empty: none does.
std::string first_difference(const std::string& a, const std::string& b);

/// The largest difference of two runs' losses, step by step; infinite where their numbers differ.
double loss_distance(const TrainResult& a, const TrainResult& b);

}  // namespace moetwin::test
