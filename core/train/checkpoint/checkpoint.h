#pragma once
// A saved training, read back in any layout.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/train/checkpoint/manifest.h"
#include "core/train/checkpoint/safetensors.h"

namespace moetwin {

class Checkpoint {
 public:
  /// A directory with a manifest. Throws Error(fault) that names the file, and the tensor where
  /// there is one, when something is missing, truncated, exchanged or not as the manifest says;
  /// elements are checked by verify() or when they are read.
  explicit Checkpoint(const std::string& directory);

  const Manifest& manifest() const { return manifest_; }
  /// From here on it is one of weights alone, of step 0.
  void forget_training() {
    manifest_.optimizer = kWeightsAlone;
    manifest_.position = {};
  }
  const std::string& directory() const { return directory_; }
  /// Checks every element. Throws Error(fault) naming file and tensor.
  void verify() const;

  bool has(const std::string& tensor) const { return manifest_.tensors.count(tensor) != 0; }
  /// Copies the wanted part of a tensor to `out`, row-major. From any thread. Throws
  /// Error(configuration) when the checkpoint has no such tensor, or one of other extents or dtype;
  /// Error(fault) as above.
  void read(const std::string& tensor, DType dtype, const TensorPart& wanted, void* out) const;

 private:
  void check_layout() const;
  const unsigned char* verified(const std::string& tensor, const StoredPart& part) const;

  std::string directory_;
  Manifest manifest_;
  std::map<std::string, SafetensorsFile> files_;
  mutable std::mutex mutex_;
  mutable std::map<const StoredPart*, bool> checked_;
};

/// step-00000010
std::string checkpoint_name(int64_t step);
bool is_checkpoint_name(const std::string& name);
/// Complete checkpoints in a directory, by step.
std::map<int64_t, std::string> complete_checkpoints(const std::string& directory);
/// The checkpoint that a path means: itself, or the newest complete one in it or in its
/// `checkpoints`. Throws Error(configuration) naming `option` and the path when there is none.
std::string find_checkpoint(const std::string& path, const std::string& option);

}  // namespace moetwin
