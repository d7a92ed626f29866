#pragma once
// Checkpoints of a made-up training of two ranks, small enough to save hundreds of times, in which
// every element is known.

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "core/train/checkpoint/checkpoint.h"
#include "core/train/checkpoint/writer.h"

namespace moetwin::test {

/// Element i of a tensor at a step.
inline float made_up(const std::string& tensor, int64_t i, int64_t step) {
  return static_cast<float>(static_cast<int64_t>(tensor.size()) * 1000 + i + step * 100000);
}

inline std::string made_up_bytes(const std::string& tensor, const TensorPart& part, int64_t step) {
  // Only parts whose boxes are whole rows of the tensor: elements follow each other.
  std::vector<float> values;
  for (int64_t i = 0; i < part.count; ++i)
    values.push_back(made_up(tensor, part.first() + i, step));
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// Rank 0 has the first half of "table" [6,4] and all of "bias" [4]; rank 1 the rest; both halves
/// end in the middle of a row.
inline RankState made_up_rank(int64_t rank, int64_t step) {
  RankState state;
  state.rank = rank;
  state.position.step = step;
  state.position.updates = step - 1;
  state.position.loss_scale = 1024;
  state.position.consumed_sequences = 8 * step;
  TensorPart table = TensorPart::whole({1, 6, 4});
  table.begin = rank == 0 ? 0 : 14;
  table.count = rank == 0 ? 14 : 10;
  state.parts.push_back({"table", DType::f32, table, made_up_bytes("table", table, step)});
  if (rank == 0) {
    const TensorPart bias = TensorPart::whole({1, 1, 4});
    state.parts.push_back({"bias", DType::f32, bias, made_up_bytes("bias", bias, step)});
  }
  return state;
}

inline CheckpointSetup made_up_setup(const std::string& directory, const std::string& type,
                                     bool async, int64_t keep_last) {
  CheckpointSetup setup;
  setup.directory = directory;
  setup.config.type = type;
  setup.config.async = async;
  setup.config.keep_last = keep_last;
  setup.optimizer = "sgd";
  setup.world = setup.local_ranks = 2;
  return setup;
}

inline void save_made_up(CheckpointWriter& writer, int64_t step) {
  for (int64_t rank = 0; rank < 2; ++rank) writer.add(made_up_rank(rank, step));
}

/// The step of a checkpoint, all of whose elements are those of that step.
inline int64_t check_made_up(const std::string& directory) {
  const Checkpoint checkpoint(directory);
  checkpoint.verify();
  const int64_t step = checkpoint.manifest().position.step;
  for (const auto& [name, extents] : std::vector<std::pair<std::string, std::array<int64_t, 3>>>{
           {"table", {1, 6, 4}}, {"bias", {1, 1, 4}}}) {
    const TensorPart whole = TensorPart::whole(extents);
    std::vector<float> values(static_cast<size_t>(whole.count));
    checkpoint.read(name, DType::f32, whole, values.data());
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i] != made_up(name, static_cast<int64_t>(i), step))
        FAIL(name << "[" << i << "] of step " << step << " is " << values[i]);
  }
  return step;
}

}  // namespace moetwin::test
