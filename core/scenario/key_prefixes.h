#pragma once
// The sections of a scenario as its keys spell them: kTraining + "global_batch_size".

#include <string>

namespace moetwin {

inline const std::string kModel = "model_config.";
inline const std::string kMoe = "model_config.moe_layer_config.";
inline const std::string kDistributed = "distributed_config.";
inline const std::string kTraining = "training_config.";

}  // namespace moetwin
