#pragma once
// The parts of a save: what ranks hand in, the files they become, and what the manifest must know
// of them.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/train/checkpoint/file_operations.h"
#include "core/train/checkpoint/manifest.h"

namespace moetwin {

/// A stretch of a tensor as one rank owns it, with its elements.
struct OwnedPart {
  std::string tensor;
  DType dtype = DType::f32;
  TensorPart part;
  std::string bytes;
};

/// What one rank hands in. Every element of every tensor is in the parts of one rank.
struct RankState {
  int64_t rank = 0;
  TrainingPosition position;  ///< the same on every rank
  std::vector<OwnedPart> parts;
};

/// What some ranks have done of a save. Sharded: files and tensors in them; full: elements.
struct SavePart {
  TrainingPosition position;
  int64_t ranks = 0;
  std::map<std::string, StoredFile> files;
  std::map<std::string, StoredTensor> tensors;
  std::vector<OwnedPart> owned;

  void join(SavePart other);
  std::string bytes() const;
  static SavePart from_bytes(const std::string& bytes);
};

/// rank-00003-of-00008.safetensors
std::string shard_name(int64_t rank, int64_t world);
/// The file of a full checkpoint.
inline constexpr const char* kFullName = "state.safetensors";

/// A file of these pieces, on the disk when this returns.
void write_file(FileOperations& files, const std::string& path,
                const std::vector<std::string_view>& pieces);
/// A rank's file; enters it and its tensors into `part`.
void write_shard(FileOperations& files, const std::string& directory, const std::string& name,
                 const RankState& state, SavePart& part);
/// One file with every tensor whole; takes the elements out of `whole`.
void write_full(FileOperations& files, const std::string& directory, SavePart& whole);

}  // namespace moetwin
