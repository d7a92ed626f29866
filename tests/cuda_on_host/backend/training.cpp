#include "tests/cuda_on_host/backend/training.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>

#include "core/device/checked.h"
#include "tests/cuda_on_host/backend/ranks.h"
#include "tests/cuda_on_host/runtime/settings.h"

namespace moetwin::test {
namespace {

// Says where nodes end; the rest is the GPU's, all of them on the one node there is.
class OnNode : public CheckedBackend {
 public:
  OnNode(Backend& inner, int64_t gpus_per_node)
      : CheckedBackend(inner), properties_(inner.properties()) {
    properties_.gpus_per_node = gpus_per_node;
    properties_.node = properties_.rank / gpus_per_node;
  }
  const DeviceProperties& properties() const override { return properties_; }

 private:
  DeviceProperties properties_;
};

class NodesCluster : public Cluster {
 public:
  NodesCluster(std::unique_ptr<Cluster> inner, int64_t gpus_per_node)
      : inner_(std::move(inner)), gpus_per_node_(gpus_per_node) {}
  int64_t world() const override { return inner_->world(); }
  DeviceProperties device() const override { return inner_->device(); }
  std::string description() const override { return inner_->description(); }
  void run(const std::function<void(Backend&)>& program) override {
    inner_->run([&](Backend& device) {
      OnNode on_node(device, gpus_per_node_);
      program(on_node);
    });
  }

 private:
  std::unique_ptr<Cluster> inner_;
  int64_t gpus_per_node_;
};

}  // namespace

MakeCluster emulated_nodes(int64_t gpus_per_node) {
  return [gpus_per_node](const Scenario& scenario) {
    return std::make_unique<NodesCluster>(emulated_gpus(scenario), gpus_per_node);
  };
}

MakeCluster modelled_nodes(int64_t gpus_per_node) {
  return [gpus_per_node](const Scenario& scenario) {
    const SimOptions sim = sim_options();
    ClusterProfile profile =
        read_cluster_profile(scenario.cluster.profile, sim.profile_directories);
    profile.gpus_per_node = profile.nics_per_node = gpus_per_node;
    return make_sim_cluster(scenario, std::move(profile), sim);
  };
}

std::unique_ptr<Cluster> emulated_gpus(const Scenario& scenario) {
  emulated::settings().gpus = static_cast<int>(scenario.distributed_config.world_size);
  emulated::settings().delay_chance = 0.01;
  CudaOptions options = emulated_options();
  options.nvml_library = "none";
  return make_cuda_cluster(scenario, options);
}

std::unique_ptr<Cluster> modelled_gpus(const Scenario& scenario) {
  return make_sim_cluster(scenario, sim_options());
}

void OpList::see(const RankStep& step) {
  if (step.step != step_) return;
  std::vector<Interval> all;
  for (const Interval& i : step.profile.intervals)
    if (i.stream >= 0 && std::string_view(i.name) != kSlowedName) all.push_back(i);
  std::sort(all.begin(), all.end(),
            [](const Interval& a, const Interval& b) { return a.order < b.order; });
  std::string text;
  for (const Interval& i : all)
    text += std::string(i.name) + (*i.group ? "[" + std::string(i.group) + "]" : "") + "@" +
            std::to_string(i.stream) + " " + std::to_string(i.bytes) + "\n";
  const std::lock_guard lock(mutex_);
  by_rank_[step.rank] = text;
}

std::string OpList::text() const {
  std::string all;
  for (const auto& [rank, list] : by_rank_) all += "rank " + std::to_string(rank) + "\n" + list;
  return all;
}

TrainResult train_with_ops(Scenario scenario, const MakeCluster& machine, bool tensors) {
  const int64_t steps = scenario.training_config.steps;
  scenario.output.timeline_steps = {steps};
  OpList ops(steps);
  TrainRunOptions options;
  options.timeout_seconds = 600;
  options.cluster = machine;
  options.tensors = tensors;
  options.look_at_rank = [&](const RankStep& step) { ops.see(step); };
  options.say = [&] { return ops.text(); };
  return train_in_child(scenario, options);
}

std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string l, r;
  for (int line = 1;; ++line) {
    const bool more_left = static_cast<bool>(std::getline(left, l)),
               more_right = static_cast<bool>(std::getline(right, r));
    if (!more_left && !more_right) return "";
    if (!more_left || !more_right || l != r)
      return std::to_string(line) + ": \"" + (more_left ? l : "end") + "\" and \"" +
             (more_right ? r : "end") + "\"";
  }
}

double loss_distance(const TrainResult& a, const TrainResult& b) {
  if (a.losses.size() != b.losses.size() || a.losses.empty())
    return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t s = 0; s < a.losses.size(); ++s)
    worst = std::max(worst, std::abs(a.losses[s] - b.losses[s]));
  return worst;
}

}  // namespace moetwin::test
