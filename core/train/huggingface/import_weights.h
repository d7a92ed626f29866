#pragma once
// A Hugging Face model's weights as a checkpoint that training starts from: weights alone, step 0.

#include <cstdint>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"
#include "core/train/checkpoint/file_operations.h"

namespace moetwin {

struct ImportedWeights {
  int64_t tensors = 0, elements = 0;  ///< of the checkpoint
  std::vector<std::string> left_out;  ///< tensors without counterpart, and why
};

/// Reads config.json and the weights in `directory`, of the model that `scenario` has, and writes
/// the checkpoint `out`, of which the manifest comes last. Throws Error(configuration) naming file
/// and tensor when one is missing, has another shape or has no counterpart, and where `out` is
/// there already.
ImportedWeights import_huggingface_weights(const std::string& directory, const Scenario& scenario,
                                           const std::string& out, FileOperations& files);

}  // namespace moetwin
