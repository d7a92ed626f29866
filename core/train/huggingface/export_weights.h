#pragma once
// A checkpoint as the `transformers` package reads models: config.json and safetensors, in shards
// with an index where they are large.

#include <cstdint>
#include <string>
#include <vector>

#include "core/train/checkpoint/checkpoint.h"
#include "core/train/checkpoint/file_operations.h"

namespace moetwin {

struct ExportOptions {
  std::string directory;                ///< to write; it may be there, but empty
  std::string dtype;                    ///< fp32, bf16, fp16; empty: the training's
  int64_t shard_bytes = 5'000'000'000;  ///< of one file, unless a tensor alone is larger
};

struct ExportedModel {
  std::string model_type, dtype;
  int64_t tensors = 0, bytes = 0;
  std::vector<std::string> files;
  std::vector<std::string> left_out;
};

/// Weights alone; config.json comes last. Throws Error(configuration) where no model of
/// transformers computes the same, naming the keys, and as Checkpoint::read.
ExportedModel export_huggingface(const Checkpoint& checkpoint, const Scenario& scenario,
                                 const ExportOptions& options, FileOperations& files);

}  // namespace moetwin
