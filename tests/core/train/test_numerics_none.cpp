// Without numbers the same program runs: the same ops and collectives in the same order, the same
// bytes, the same memory, the same time.

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

double hash_of(const char* text) {
  uint32_t hash = 2166136261u;
  for (; *text; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 16777619u;
  return hash;
}

constexpr size_t kFields = 8;

/// Every stretch of work of a step on this rank, in launch order.
TrainRunOptions list_work() {
  TrainRunOptions options;
  options.tensors = false;
  const auto take = [](Trainer& trainer) {
    Context& context = trainer.context();
    for (const Stream stream :
         {context.streams.compute, context.streams.dispatch, context.streams.reduction})
      context.device.synchronize(stream);
    Profile profile = context.device.take_profile(true);
    // In launch order, stream by stream; the host's stretches come in the order of time.
    std::stable_sort(profile.intervals.begin(), profile.intervals.end(),
                     [](const Interval& a, const Interval& b) {
                       if (a.stream != b.stream || a.stream < 0) return a.stream < b.stream;
                       return a.order < b.order;
                     });
    std::vector<double> numbers;
    for (const Interval& i : profile.intervals)
      numbers.insert(numbers.end(),
                     {hash_of(i.name), hash_of(i.group), static_cast<double>(i.bytes),
                      static_cast<double>(i.stream), static_cast<double>(i.activity),
                      static_cast<double>(i.phase), i.start, i.end});
    return numbers;
  };
  // Forward and backward of steps 2 and 3: detail is asked for here, and lost at the end of a step.
  options.look_at_gradients = [take](Trainer& trainer, int64_t step) {
    std::vector<double> numbers = take(trainer);
    return step == 1 ? std::vector<double>{} : numbers;
  };
  options.look_after_step = [](Trainer& trainer, int64_t) {
    trainer.context().device.take_profile(true);
    const MemoryUse& use = trainer.context().memory.use();
    std::vector<double> numbers{static_cast<double>(use.peak),
                                static_cast<double>(use.peak_reserved)};
    for (const int64_t bytes : use.bytes_at_peak) numbers.push_back(static_cast<double>(bytes));
    numbers.resize(2 * kFields, 0.0);
    return numbers;
  };
  options.look_at_row = [](const StepRow& row) {
    std::vector<double> numbers{static_cast<double>(row.host_syncs),
                                static_cast<double>(row.peak_memory_bytes), row.start, row.end};
    for (const auto& [purpose, sent] : row.by_purpose)
      numbers.push_back(static_cast<double>(sent.bytes));
    return numbers;
  };
  return options;
}

void check_same(Scenario s) {
  CAPTURE(s.routing.source, s.distributed_config.expert_parallel_size);
  const TrainResult full = train_in_child(s, list_work());
  s.training_config.numerics = "none";
  const TrainResult none = train_in_child(s, list_work());
  REQUIRE(full.seen.size() == none.seen.size());
  for (size_t r = 0; r < full.seen.size(); ++r) {
    CAPTURE(r);
    REQUIRE(full.seen[r].size() > 100 * kFields);
    REQUIRE(full.seen[r].size() == none.seen[r].size());
    for (size_t i = 0; i < full.seen[r].size(); ++i)
      if (full.seen[r][i] != none.seen[r][i])
        FAIL("work " << i / kFields << ", field " << i % kFields << ": " << full.seen[r][i]
                     << " with numbers, " << none.seen[r][i] << " without");
  }
  CHECK(full.rows == none.rows);
  CHECK(full.counts == none.counts);
  CHECK(full.step_seconds == none.step_seconds);
}

}  // namespace

TEST_CASE("scripted routing: the same work with and without numbers") {
  for (const char* source : {"uniform", "W1", "W5", "W8"}) {
    Scenario s = small_training(2, 2, 4, 2, 3);
    s.routing.source = source;
    s.training_config.global_batch_size = 8;
    check_same(s);
  }
}

TEST_CASE("capacity, overlap, ZeRO-1, shared expert, AdamW: the same work without numbers") {
  Scenario s = small_training(2, 2, 4, 2, 3);
  s.routing.source = "W1";
  s.routing.workload.hot_fraction = 0.8;
  s.distributed_config.zero_stage = 1;
  s.distributed_config.comm_optimization.all_to_all_overlap = true;
  s.training_config.optimizer = "adamw";
  s.training_config.dtype = "bf16";
  s.training_config.max_grad_norm = 1;
  s.model_config.dropout = 0.1;
  MoeLayerConfig& moe = s.model_config.moe_layer_config;
  moe.capacity_factor = 1;
  moe.shared_expert_hidden_size = 8;
  check_same(s);
  s.distributed_config.data_parallel_size = 1;
  s.distributed_config.expert_parallel_size = 4;
  moe.num_experts = 2;  // hidden rows
  check_same(s);
}

TEST_CASE("tensor and sequence parallel, split experts, folding: the same work without numbers") {
  for (const bool sequence : {false, true})
    for (const int64_t etp : {1, 2}) {
      CAPTURE(sequence, etp);
      Scenario s = small_training(1, 1, 4, 2, 3);
      s.model_config.sequence_length = 8;
      s.routing.source = "W1";
      s.training_config.dtype = "bf16";
      s.training_config.global_batch_size = 4;
      DistributedConfig& d = s.distributed_config;
      d.world_size = 4;
      d.tensor_parallel_size = 2;
      d.expert_parallel_size = 4 / etp;
      d.expert_tensor_parallel_size = etp;
      d.parallel_folding = true;
      d.sequence_parallel = sequence;
      d.zero_stage = 1;
      d.comm_optimization.all_to_all_overlap = true;
      s.model_config.moe_layer_config.shared_expert_hidden_size = 8;
      s.model_config.moe_layer_config.capacity_factor = 1;
      check_same(s);
    }
}

TEST_CASE("a pipeline: the same work with and without numbers") {
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "interleaved_1f1b"}) {
    Scenario s = small_training(1, 2, 4, 2, 3);
    s.routing.source = "W1";
    s.model_config.num_layers = 4;
    s.training_config.global_batch_size = 8;
    DistributedConfig& d = s.distributed_config;
    d.world_size = 4;
    d.pipeline_parallel_size = 2;
    d.pipeline_schedule = schedule;
    d.virtual_pipeline_size = d.pipeline_schedule == "interleaved_1f1b" ? 2 : 1;
    check_same(s);
    d.comm_optimization.micro_batch_overlap = true;
    if (d.pipeline_schedule.ends_with("1f1b")) check_same(s);
  }
}

TEST_CASE("more than 2^31 elements pass through every layer without wrapping", "[P070][P068]") {
  // 262,145 tokens x 2 x 4,096 is beyond 2^31; activations of a sequence of 65,536 too.
  Scenario s = small_training(1, 2, 4, 2, 1);
  s.model_config.hidden_size = 4096;
  s.model_config.num_attention_heads = 32;
  s.model_config.ffn_hidden_size = 16384;
  s.model_config.moe_layer_config.expert_hidden_size = 16384;
  s.model_config.moe_layer_config.capacity_factor = std::nullopt;
  s.model_config.sequence_length = 262145;
  s.training_config.numerics = "none";
  s.training_config.dtype = "bf16";
  s.memory.on_exceed = "report";
  s.routing.source = "uniform";
  TrainRunOptions options;
  options.look_at_row = [](const StepRow& row) {
    std::vector<double> numbers{row.seconds(), static_cast<double>(row.tokens)};
    for (const auto& [purpose, sent] : row.by_purpose)
      if (purpose == "dispatch" || purpose == "combine")
        numbers.push_back(static_cast<double>(sent.bytes));
    return numbers;
  };
  options.look_after_step = [](Trainer& trainer, int64_t) {
    return std::vector<double>{static_cast<double>(trainer.context().memory.use().peak)};
  };
  const TrainResult result = train_in_child(s, options);
  REQUIRE(result.rows.size() == 4);
  CHECK(result.rows[0] > 0);
  CHECK(result.rows[1] == 2 * 262145);
  // 262,145 x 2 assignments over 4 experts are 131,072 each and 2 over: rank 0 gives them to
  // experts 0 and 1, its own, rank 1 to 2 and 3. So each sends 2 x 131,072 rows of 4,096 x 2 B, two
  // layers.
  for (const size_t i : {2, 3}) CHECK(result.rows[i] == 2 * 2 * 2 * 131072.0 * 4096 * 2);
  CHECK(result.counts[0][0] + result.counts[0][1] + result.counts[0][2] + result.counts[0][3] ==
        2 * 2 * 262145);
  // The gathered tokens of one layer alone are 4.3 GB.
  for (const auto& of_rank : result.seen) CHECK(of_rank[0] > 2.0 * 262145 * 4096 * 2);
}
