#pragma once
// Scenario texts that several tests read, and short ways to read them.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/scenario/read.h"

namespace moetwin {

/// Seed 001's two dictionaries as JSON, comments and trailing commas included.
inline const std::string kSeedScenario = R"({
  "model_config": {
    "model_type": "transformer_moe",
    "hidden_size": 4096,
    "num_layers": 32,
    "moe_layer_config": {
      "num_experts": 64,
      "top_k": 2,
      // one MoE layer every 2 layers
      "moe_every_k_layers": 2,
      "aux_loss_factor": 0.01, // weight of the balance loss
    },
  },
  "distributed_config": {
    "world_size": 16,
    "data_parallel_size": 8,
    "expert_parallel_size": 2,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "comm_optimization": {
      "all_to_all_overlap": true,
    },
    /* collective library */
    "distributed_backend": "nccl",
    "master_addr": "env://",
    "master_port": "env://",
  },
})";

/// The message with which `text` is refused, or "accepted".
inline std::string refusal(const std::string& text,
                           const std::vector<std::string>& overrides = {}) {
  try {
    parse_scenario(text, "test.json", overrides);
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::configuration);
    return error.what();
  }
  return "accepted";
}

/// The warnings with which `text` is accepted, one a line.
inline std::string warnings_of(const std::string& text,
                               const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> warnings;
  parse_scenario(text, "test.json", overrides, &warnings);
  std::string all;
  for (const std::string& warning : warnings) all += warning + "\n";
  return all;
}

inline size_t lines_in(const std::string& text) {
  return 1 + static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace moetwin
