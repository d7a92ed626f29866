#pragma once
// Which elements of which tensor of a Hugging Face model are which of ours. Theirs are [out, in],
// ours [in, out], with queries, keys and values, or gate and up, side by side; ours rotate pairs
// (i, i + D/2) everywhere, DeepSeek's files pairs (2i, 2i + 1).

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace moetwin {

/// Rows [their_row, their_row + rows) x columns [0, columns) of one of theirs, which is `columns`
/// wide, and where they are in one of ours, seen as a matrix that is `our_width` wide.
struct WeightPiece {
  std::string theirs, ours;
  int64_t their_row = 0, rows = 0, columns = 0;
  int64_t our_row = 0, our_column = 0, our_width = 0;
  bool transposed = false;
  /// Row their_row + order[i] of theirs is the i-th of ours; empty: the i-th.
  std::vector<int64_t> order{};
};

struct WeightMap {
  std::map<std::string, std::vector<int64_t>> theirs;  ///< their shapes
  std::map<std::string, std::array<int64_t, 3>> ours;  ///< our extents, as checkpoints have them
  std::vector<WeightPiece> pieces;  ///< of one of ours one behind the other; they cover all of both
};

/// `model_type`: mixtral, qwen3_moe, olmoe or deepseek_v3, whose config.json the model came from or
/// would go to. `interleaved`: theirs has pairs (2i, 2i + 1) (deepseek_v3's rope_interleave).
WeightMap huggingface_weights(const ModelConfig& model, const std::string& model_type,
                              bool interleaved = true);

/// Copies a piece from their tensor to ours, or back; both whole, in fp32.
void piece_to_ours(const WeightPiece& piece, const float* theirs, float* ours);
void piece_to_theirs(const WeightPiece& piece, const float* ours, float* theirs);

}  // namespace moetwin
