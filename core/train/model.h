#pragma once
// The transformer of one rank: embedding, layers, head; forward and backward of one micro-batch.

#include <functional>
#include <vector>

#include "core/nn/embedding.h"
#include "core/train/transformer_layer.h"

namespace moetwin {

class Model {
 public:
  struct Saved {
    Tensor ids;
    std::vector<TransformerLayer::Saved> layers;
    Head::Saved head;
  };
  Model(ParameterSet& parameters, const LayerSetup& setup);

  /// ids, targets i32 [T]; adds {sum of losses, valid tokens} to sums real [2]. Without `sums` it
  /// ends after the last layer.
  void forward(Context& context, const MicroBatch& batch, const Tensor& ids, const Tensor& targets,
               const Tensor& sums, Saved& saved);
  /// Adds all gradients; calls `block_done(b)` when those of block b and higher are launched. What
  /// was saved is freed on the way.
  void backward(Context& context, const MicroBatch& batch, Saved& saved,
                const std::function<void(int64_t)>& block_done);

  /// Model numbers of the MoE layers.
  static std::vector<int64_t> moe_layers(const ModelConfig& model);

 private:
  bool tied_;  ///< the head reads the embedding's table
  TensorParallel tp_;
  Embedding embedding_;
  Dropout embedding_dropout_;
  std::vector<TransformerLayer> layers_;
  Head head_;
};

}  // namespace moetwin
