#pragma once
// The config.json of the `transformers` model that computes what a scenario's model computes.

#include <json/value.h>

#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace moetwin {

struct HuggingFaceConfig {
  std::string model_type;  ///< mixtral | qwen3_moe | olmoe | deepseek_v3
  Json::Value json;
  /// What of training has no place in it, or another meaning there.
  std::vector<std::string> left_out;
};

/// latent attention: deepseek_v3; QK norms per head: qwen3_moe; over the projection: olmoe; else
/// mixtral. Throws Error(configuration) with a line for every key in which no model of that type
/// computes the same. `dtype`: of the stored weights.
HuggingFaceConfig huggingface_config(const Scenario& scenario, const std::string& dtype);

}  // namespace moetwin
