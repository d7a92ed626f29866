// A training that goes on from a checkpoint is the training that was never broken: bit for bit in
// the same layout, to 1e-6 in any other.

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "backends/sim/cluster.h"
#include "core/record/recorder.h"
#include "core/scenario/read.h"
#include "core/train/train.h"
#include "tests/core/train/checkpoint/layouts.h"
#include "tests/support/in_child.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;
namespace fs = std::filesystem;

namespace {

CheckpointSetup setup_of(const Scenario& s, const std::string& directory) {
  CheckpointSetup setup;
  setup.directory = directory;
  setup.config = s.checkpoint;
  setup.optimizer = s.training_config.optimizer;
  setup.scenario = scenario_to_json(s);
  setup.world = setup.local_ranks = s.distributed_config.world_size;
  return setup;
}

/// Trains in a child, saving into `directory`, from a checkpoint where one is named.
TrainResult train_saving(const Scenario& s, const std::string& directory,
                         const std::string& from = "") {
  const auto files = system_files();
  std::unique_ptr<CheckpointWriter> writer;
  std::unique_ptr<Checkpoint> checkpoint;
  TrainRunOptions options;
  options.prepare = [&](TrainerServices& services) {
    writer = std::make_unique<CheckpointWriter>(setup_of(s, directory), *files);
    services.checkpoints = writer.get();
    if (from.empty()) return;
    checkpoint = std::make_unique<Checkpoint>(from);
    services.resume = checkpoint.get();
  };
  return train_in_child(s, options);
}

/// Every tensor of both checkpoints is the same, bit for bit.
void check_same_tensors(const std::string& a, const std::string& b, size_t at_least) {
  const Checkpoint first(a), second(b);
  const auto& tensors = first.manifest().tensors;
  CHECK(tensors.size() >= at_least);
  REQUIRE(second.manifest().tensors.size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const TensorPart whole = TensorPart::whole(tensor.extents);
    std::string one(static_cast<size_t>(whole.count * dtype_size(tensor.dtype)), '\0'), two = one;
    first.read(name, tensor.dtype, whole, one.data());
    second.read(name, tensor.dtype, whole, two.data());
    if (one != two) FAIL_CHECK(name << " differs");
  }
}

constexpr int64_t kSteps = 11;

/// Norms of skipped steps may be NaN: bits, not values.
bool same_bits(const std::vector<double>& a, const double* b, size_t n) {
  return a.size() == n && std::memcmp(a.data(), b, n * sizeof(double)) == 0;
}

void check_every_step(Scenario s) {
  const TemporaryDirectory directory;
  s.checkpoint.every_steps = 1;
  s.checkpoint.keep_last = 0;
  s.training_config.steps = kSteps;
  const TrainResult whole = train_saving(s, directory / "whole");
  s.checkpoint.every_steps = kSteps;
  for (int64_t step = 1; step < kSteps; ++step) {
    CAPTURE(step);
    const std::string mine = directory / std::to_string(step);
    const TrainResult rest = train_saving(s, mine, directory / ("whole/" + checkpoint_name(step)));
    const auto from = static_cast<ptrdiff_t>(step);
    CHECK(rest.losses == std::vector<double>(whole.losses.begin() + from, whole.losses.end()));
    CHECK(same_bits(rest.gradient_norms, whole.gradient_norms.data() + from,
                    whole.gradient_norms.size() - static_cast<size_t>(from)));
    CHECK(rest.counts ==
          std::vector<std::vector<int64_t>>(whole.counts.begin() + from, whole.counts.end()));
    CHECK(rest.parameters == whole.parameters);
    CHECK(rest.checksums == whole.checksums);
    check_same_tensors(directory / ("whole/" + checkpoint_name(kSteps)),
                       mine + "/" + checkpoint_name(kSteps), 30);
  }
}

}  // namespace

TEST_CASE("resumed at every step, fp32, everything random on: bit-equal", "[P146][P149][P152]") {
  CheckpointLayout layout{2, 2};
  layout.zero = 1;
  Scenario s = layout.scenario();
  s.model_config.dropout = 0.1;
  s.routing.jitter_epsilon = 0.01;
  s.routing.noise = {"gumbel", 0.1};
  s.training_config.schedule.kind = "cosine";
  s.training_config.schedule.warmup_steps = 3;
  check_every_step(s);
}

TEST_CASE("resumed at every step, bf16, saved whole and beside training: bit-equal",
          "[P138][P155]") {
  Scenario s = CheckpointLayout{1, 4}.scenario();
  s.training_config.dtype = "bf16";
  s.checkpoint.type = "full";
  s.checkpoint.async = true;
  check_every_step(s);
}

TEST_CASE("resumed with router weights and counts that act late, and an average of counts") {
  Scenario s = CheckpointLayout{1, 2}.scenario();
  s.routing.weight_delay_steps = 2;
  s.model_config.moe_layer_config.bias_update_delay_steps = 3;
  s.model_config.moe_layer_config.bias_count_ema = 0.5;
  check_every_step(s);
}

TEST_CASE("resumed with sizes that no sharding divides: bit-equal", "[P149]") {
  CheckpointLayout layout{4, 1};
  layout.zero = 3;
  Scenario s = layout.scenario();
  s.model_config.hidden_size = 10;
  s.model_config.ffn_hidden_size = 7;
  s.model_config.moe_layer_config.expert_hidden_size = 9;
  check_every_step(s);
}

TEST_CASE("resumed with sgd in fp64: bit-equal") {
  Scenario s = CheckpointLayout{2, 1}.scenario();
  s.training_config.dtype = "fp64";
  s.training_config.optimizer = "sgd";
  check_every_step(s);
}

TEST_CASE("resumed with pipeline stages, TP, sharding: bit-equal", "[P138][P146]") {
  SECTION("three uneven stages, tied embeddings, ZeRO 1, late counts") {
    CheckpointLayout layout = pipelined({2, 2, 1}, 3, {1, 1, 2});
    Scenario s = layout.scenario();
    s.model_config.num_layers = 4;
    s.routing.weight_delay_steps = 1;
    s.model_config.moe_layer_config.bias_update_delay_steps = 2;
    check_every_step(s);
  }
  SECTION("virtual stages, fp16, a scale that falls and grows") {
    Scenario s = pipelined({1, 2}, 2, {1, 0, 0, 1}, "interleaved_1f1b").scenario();
    s.training_config.dtype = "fp16";
    s.training_config.loss_scaling.initial_scale = 1 << 24;  // too large: steps are skipped
    s.training_config.loss_scaling.growth_interval_steps = 2;
    check_every_step(s);
  }
  SECTION("TP with sequence parallelism and split experts, zero bubble") {
    CheckpointLayout layout{1, 2, 1, "sharded", true, 2, 2, true};
    check_every_step(pipelined(layout, 2, {1, 1}, "zb_h1").scenario());
  }
  SECTION("ZeRO 3, bf16, full recompute, offload") {
    CheckpointLayout layout{2, 2, 3};
    layout.offload = true;
    Scenario s = layout.scenario();
    s.training_config.dtype = "bf16";
    s.training_config.recompute = "full";
    check_every_step(s);
  }
}

namespace {

/// What a layout makes of a checkpoint: all it has loaded, saved again into `directory`, and the
/// loss of the next step.
double loaded(const CheckpointLayout& layout, const std::string& checkpoint_path,
              const std::string& directory) {
  Scenario s = layout.scenario();
  const auto losses = in_child([&] {
    const Checkpoint checkpoint(checkpoint_path);
    s.training_config.steps = checkpoint.manifest().position.step + 1;
    const Grid grid(s.distributed_config, s.model_config.moe_layer_config.num_experts,
                    s.model_config.expert_width());
    const auto files = system_files();
    CheckpointWriter writer(setup_of(s, directory), *files);
    const auto data = synthetic_data(static_cast<uint64_t>(s.training_config.seed),
                                     s.model_config.sequence_length, s.model_config.vocab_size);
    std::vector<double> loss;
    RunInfo info;
    info.on_step = [&loss](const StepRow& row) { loss.push_back(row.loss); };
    Recorder recorder(s, grid, info);
    const auto cluster = make_sim_cluster(s, sim_options());
    cluster->run([&](Backend& device) {
      TrainerServices services;
      services.data = data.get();
      services.recorder = &recorder;
      services.resume = &checkpoint;
      Trainer trainer(device, s, grid, services);
      RankState state;
      state.rank = trainer.rank();
      state.position = checkpoint.manifest().position;
      state.parts = trainer.state().owned();
      writer.add(std::move(state));
      trainer.run();
    });
    return loss;
  });
  REQUIRE(losses.size() == 1);
  return losses[0];
}

}  // namespace

TEST_CASE("saved in twelve layouts, loaded in fifteen others: state by id, next loss to 1e-6",
          "[P141][P142][P144][P145][P148][P151]") {
  const TemporaryDirectory directory;
  int number = 0;
  for (const CheckpointLayout& from : saving_layouts()) {
    INFO("saved with " << from.name());
    Scenario s = from.scenario();
    s.training_config.steps = 4;
    s.checkpoint.every_steps = 3;
    const std::string saved = directory / std::to_string(++number);
    const TrainResult whole = train_saving(s, saved);
    const std::string checkpoint = saved + "/" + checkpoint_name(3);
    // By global ids, whatever the layout.
    const Manifest manifest = Checkpoint(checkpoint).manifest();
    for (int64_t expert = 0; expert < 4; ++expert)
      for (const char* part : {"w1", "b1", "w2", "b2"}) {
        const std::string name = "layers.1.moe.experts." + std::to_string(expert) + "." + part;
        CHECK(manifest.tensors.count(name) == 1);
        CHECK(manifest.tensors.count("optimizer.m." + name) == 1);
        CHECK(manifest.tensors.count("optimizer.v." + name) == 1);
      }
    for (const CheckpointLayout& to : loading_layouts()) {
      INFO("loaded with " << to.name());
      const std::string again = saved + "-again";
      CHECK(loaded(to, checkpoint, again) == Approx(whole.losses[3]).margin(1e-6));
      check_same_tensors(checkpoint, again + "/" + checkpoint_name(3), 100);
      fs::remove_all(again);
    }
  }
}
