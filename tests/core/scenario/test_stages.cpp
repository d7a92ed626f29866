#include <catch2/catch.hpp>

#include "core/scenario/rules.h"
#include "core/scenario/stages.h"
#include "tests/core/scenario/texts.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

ModelConfig layers(int64_t n) {
  ModelConfig model;
  model.num_layers = n;
  return model;
}

DistributedConfig stages(int64_t p, int64_t v = 1) {
  DistributedConfig d;
  d.pipeline_parallel_size = p;
  d.virtual_pipeline_size = v;
  return d;
}

/// A scenario of 4 stages and 12 layers with these keys of distributed_config; 8 micro-batches.
std::string piped(const std::string& keys) {
  return R"({"model_config": {"num_layers": 12}, "training_config": {"global_batch_size": 8},
             "distributed_config": {"world_size": 4, "pipeline_parallel_size": 4)" +
         (keys.empty() ? "" : ", " + keys) + "}}";
}

}  // namespace

TEST_CASE("layers are spread in order, equally or as asked") {
  CHECK(stage_layers(layers(6), stages(3)) == std::vector<LayerRange>{{0, 2}, {2, 2}, {4, 2}});
  DistributedConfig d = stages(3);
  d.layers_per_stage = {0, 5, 1};
  CHECK(stage_layers(layers(6), d) == std::vector<LayerRange>{{0, 0}, {0, 5}, {5, 1}});
  d = stages(4);
  d.num_layers_in_first_pipeline_stage = 2;
  d.num_layers_in_last_pipeline_stage = 4;
  CHECK(stage_layers(layers(12), d) == std::vector<LayerRange>{{0, 2}, {2, 3}, {5, 3}, {8, 4}});
}

TEST_CASE("virtual stage g is on rank g mod p") {
  // Megatron: 8 layers on 2 ranks with 2 chunks: rank 0 has 0 1 | 4 5, rank 1 has 2 3 | 6 7.
  const DistributedConfig d = stages(2, 2);
  CHECK(rank_layers(layers(8), d, 0) == std::vector<LayerRange>{{0, 2}, {4, 2}});
  CHECK(rank_layers(layers(8), d, 1) == std::vector<LayerRange>{{2, 2}, {6, 2}});
  ModelConfig model = layers(8);
  model.moe_layer_config.num_experts = 4;
  model.moe_layer_config.moe_every_k_layers = 2;
  CHECK(moe_layers(model, rank_layers(model, d, 1)) == std::vector<int64_t>{3, 7});
}

TEST_CASE("stages that cannot be are refused with what can") {
  CHECK(refusal(piped("")) == "accepted");
  CHECK_THAT(refusal(piped("\"layers_per_stage\": [4, 4, 4]")),
             Contains("3 numbers for pipeline_parallel_size 4") && Contains("legal: 4 numbers"));
  CHECK_THAT(refusal(piped("\"layers_per_stage\": [1, 2, 3, 4]")),
             Contains("adds up to 10") && Contains("num_layers = 12"));
  CHECK_THAT(refusal(piped("\"layers_per_stage\": [3, 3, 3, 3], "
                           "\"num_layers_in_last_pipeline_stage\": 3")),
             Contains("legal: one or the other"));
  CHECK(refusal(piped("\"num_layers_in_first_pipeline_stage\": 2, "
                      "\"num_layers_in_last_pipeline_stage\": 4")) == "accepted");
  CHECK_THAT(refusal(piped("\"num_layers_in_first_pipeline_stage\": 2")),
             Contains("leaves 10 for 3 others"));
  CHECK_THAT(refusal(piped("\"num_layers_in_last_pipeline_stage\": 13")),
             Contains("leaves -1 for 3 others"));
}

TEST_CASE("schedules that cannot be are refused with what can") {
  const std::string interleaved = "\"pipeline_schedule\": \"interleaved_1f1b\"";
  CHECK(refusal(piped(interleaved + ", \"virtual_pipeline_size\": 3")) == "accepted");
  CHECK_THAT(refusal(piped(interleaved)), Contains("virtual_pipeline_size 1; legal: both"));
  CHECK_THAT(refusal(piped("\"virtual_pipeline_size\": 3")),
             Contains("with pipeline_schedule 1f1b") && Contains("interleaved_1f1b"));
  CHECK_THAT(refusal(piped(interleaved + ", \"virtual_pipeline_size\": 5")),
             Contains("virtual_pipeline_size 5 (rest 12)") && Contains("layers_per_stage"));
  CHECK_THAT(refusal(piped(interleaved + ", \"virtual_pipeline_size\": 3"),
                     {"training_config.global_batch_size=6"}),
             Contains("6 micro-batches a step") && Contains("legal global_batch_size: 4, 8, 12"));
  CHECK(refusal(piped("\"pipeline_schedule\": \"zb_h1\", \"zero_stage\": 1")) == "accepted");
  CHECK(refusal(piped("\"pipeline_schedule\": \"zb_h1\", \"zero_stage\": 3")) == "accepted");
  const std::string pairs = "\"comm_optimization\": {\"micro_batch_overlap\": true}, ";
  CHECK(refusal(piped(pairs + "\"pipeline_schedule\": \"1f1b\"")) == "accepted");
  CHECK(refusal(piped(pairs + interleaved + ", \"virtual_pipeline_size\": 3")) == "accepted");
  for (const char* schedule : {"gpipe", "zb_h1"})
    CHECK_THAT(refusal(piped(pairs + "\"pipeline_schedule\": \"" + std::string(schedule) + "\"")),
               Contains("micro_batch_overlap with pipeline_schedule " + std::string(schedule)) &&
                   Contains("legal: 1f1b, interleaved_1f1b"));
  CHECK_THAT(refusal(piped("\"pipeline_schedule\": \"dualpipe\"")),
             Contains("gpipe, 1f1b, interleaved_1f1b, zb_h1"));
}
