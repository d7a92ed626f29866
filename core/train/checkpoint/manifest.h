#pragma once
// What a checkpoint is: its state in numbers, and for every tensor where each part of it lies and
// what its bytes sum up to. Its presence says that all of the checkpoint is there.

#include <json/value.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/device/tensor.h"
#include "core/train/checkpoint/tensor_part.h"

namespace moetwin {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kManifestSchema = "moetwin-checkpoint/1";
/// `optimizer` of a checkpoint without moments.
inline constexpr const char* kWeightsAlone = "none";

/// Everything of a training that is no tensor. Random draws are functions of the seed, the step and
/// the element (semantics 6), so the position in them is the step.
struct TrainingPosition {
  int64_t step = 0;
  int64_t updates = 0;  ///< steps that were not skipped: what AdamW's bias correction counts
  double loss_scale = 1;
  int64_t clean_steps = 0;         ///< since the scale last changed or an overflow
  int64_t overflows = 0;           ///< since the scale last changed
  int64_t consumed_sequences = 0;  ///< of the training split, in all
  int64_t data_sequences = 0;      ///< of the training split; 0: unknown
  int64_t seed = 0;
  double best_validation_loss = std::numeric_limits<double>::infinity();
  int64_t best_step = 0;  ///< 0: no validation yet
};

struct StoredPart {
  std::string file, key;  ///< file of the checkpoint's directory and tensor in it
  TensorPart part;        ///< its `global` is that of the tensor
  uint32_t checksum = 0;
};

struct StoredTensor {
  DType dtype = DType::f32;
  std::array<int64_t, 3> extents{1, 1, 1};
  std::vector<StoredPart> parts;
};

struct StoredFile {
  int64_t bytes = 0;
  uint32_t header_checksum = 0;
};

struct Manifest {
  std::string type;       ///< full | sharded
  std::string optimizer;  ///< adamw | sgd | none: weights alone
  TrainingPosition position;
  Json::Value scenario;       ///< all keys
  std::string scenario_path;  ///< its data files are relative to it; may be empty
  std::map<std::string, StoredFile> files;
  std::map<std::string, StoredTensor> tensors;
};

/// The bytes of manifest.json, with a checksum of their own.
std::string manifest_text(const Manifest& manifest);
/// Throws Error(fault) naming `path` when the text is not what manifest_text wrote, and
/// Error(configuration) when it is of another version.
Manifest parse_manifest(const std::string& text, const std::string& path);

/// What a tensor of the optimizer's state is called: "optimizer.m.NAME".
std::string moment_name(const char* moment, const std::string& name);

}  // namespace moetwin
