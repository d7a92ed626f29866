#pragma once
// The weights in a directory as the `transformers` package saves them: model.safetensors, or shards
// and model.safetensors.index.json.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/train/checkpoint/safetensors.h"

namespace moetwin {

inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kIndexName = "model.safetensors.index.json";

/// Whether there are weights of that form.
bool has_model_files(const std::string& directory);

class ModelFiles {
 public:
  /// Throws Error(fault) naming file and tensor when a file is missing or not whole, and
  /// Error(configuration) when the index is none.
  explicit ModelFiles(const std::string& directory);

  const std::string& directory() const { return directory_; }
  /// All tensors, by name.
  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return file_of_.count(name) != 0; }
  /// Throws Error(configuration) naming file and tensor when it is not there, has another shape, or
  /// is of no floating type.
  void check(const std::string& name, const std::vector<int64_t>& shape) const;
  /// Its elements in fp32. Throws as check.
  std::vector<float> read(const std::string& name, const std::vector<int64_t>& shape) const;

 private:
  std::string directory_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;  ///< by name in the directory
  std::map<std::string, const SafetensorsFile*> file_of_;          ///< by tensor
};

}  // namespace moetwin
