#pragma once
// The part of the transformer that one rank owns: chunks of consecutive layers (one, or several
// with virtual pipeline stages), the embedding before the model's first layer, the head after its
// last. Forward and backward of one chunk and micro-batch.

#include <functional>
#include <optional>
#include <vector>

#include "core/nn/embedding.h"
#include "core/scenario/stages.h"
#include "core/train/transformer_layer.h"

namespace moetwin {

/// What a micro-batch brings into a chunk.
struct ChunkInput {
  Tensor ids;      ///< i32 [T], first stage of the model
  Tensor hidden;   ///< [T,H], every other stage
  Tensor targets;  ///< i32 [T], last stage of the model
};

class ModelChunk {
 public:
  /// Of one micro-batch in flight.
  struct Saved {
    Tensor ids;
    std::vector<TransformerLayer::Saved> layers;
    Head::Saved head;
  };
  /// The layers of `range`; `first`, `last`: of the stages of the whole model.
  ModelChunk(ParameterSet& parameters, const LayerSetup& setup, LayerRange range, bool first,
             bool last);

  /// The hidden state for the next stage; undefined after the head, which adds {sum of losses,
  /// valid tokens} to sums real [2]. Without `sums` it ends after the last layer.
  Tensor forward(Context& context, const MicroBatch& batch, const ChunkInput& input,
                 const Tensor& sums, Saved& saved);
  /// `dy`: gradient of what forward returned. Adds all gradients; calls `block_done(b)` when those
  /// of block b and of higher ones of this chunk are launched. What was saved is freed on the way.
  /// Returns the gradient of input.hidden; undefined on the first stage.
  Tensor backward(Context& context, const MicroBatch& batch, Tensor dy, Saved& saved,
                  const std::function<void(int64_t)>& block_done);
  /// After a backward that left gradients of parameters for later: those of one micro-batch are
  /// launched now, of all blocks.
  void parameter_gradients_done(Context& context) const;

  bool first() const { return embedding_.has_value(); }
  bool last() const { return head_.has_value(); }
  const LayerRange& range() const { return range_; }
  std::vector<TransformerLayer>& layers() { return layers_; }
  /// Blocks number the parameters in the order of forward: embedding 0, layer i i + 1, head L + 1.
  int64_t lowest_block() const { return first() ? 0 : range_.first + 1; }

 private:
  LayerRange range_;
  bool tied_;  ///< the head here reads the table of the embedding here
  TensorParallel tp_;
  std::optional<Embedding> embedding_;
  Dropout embedding_dropout_;
  std::vector<TransformerLayer> layers_;
  std::optional<Head> head_;
};

/// All chunks of a rank, in the order data flows.
class Model {
 public:
  Model(ParameterSet& parameters, const LayerSetup& setup);
  std::vector<ModelChunk>& chunks() { return chunks_; }

 private:
  std::vector<ModelChunk> chunks_;
};

}  // namespace moetwin
