#pragma once
// Token embedding with optional learned positions, and the language-model head that may share its
// table. Under TP each rank has ceil(V / TP) rows of it (the last ones may be padding, which no
// token and no softmax sees), and the loss is taken without gathering logits.

#include "core/nn/norm.h"
#include "core/nn/tensor_parallel.h"
#include "core/ops/embedding.h"
#include "core/ops/loss.h"

namespace moetwin {

class Embedding {
 public:
  Embedding() = default;
  /// `shared`: with the head of another pipeline stage, which holds a copy of the table. `parts`:
  /// of a sequence, of which this rank has one (context parallelism).
  Embedding(ParameterSet& parameters, const ModelConfig& model, int64_t block,
            const TensorParallel& tp = {}, bool shared = false, int64_t parts = 1);
  /// ids i32 [T] -> [T,H], or this rank's slice of it.
  Tensor forward(Context& context, const Tensor& ids) const;
  void backward(Context& context, const Tensor& ids, const Tensor& d_out) const;
  Parameter& table() const { return *table_; }

 private:
  /// As many positions as the part of a sequence has.
  Tensor of_part(const Tensor& positions) const;

  TensorParallel tp_;
  EmbedAttr attr_;
  int64_t hidden_ = 0;
  Parameter* table_ = nullptr;
  Parameter* positions_ = nullptr;
};

/// Final norm, logits, cross-entropy.
class Head {
 public:
  struct Saved {
    Norm::Saved norm;
    Tensor normed;
    Tensor d_logits;  ///< gradient of the loss after forward with a backward to come
  };
  Head() = default;
  /// `tied`: the embedding's table where it is on this rank; null: a matrix of its own, or with
  /// tied embeddings a copy of the table of the first stage.
  Head(ParameterSet& parameters, const ModelConfig& model, Parameter* tied, int64_t block,
       const TensorParallel& tp = {});
  /// Adds {sum of losses, valid tokens} to sums real [2], on the lowest rank of a TP group; targets
  /// i32 [T], -1 is not counted.
  void forward(Context& context, const MicroBatch& batch, const Tensor& x, const Tensor& targets,
               const Tensor& sums, Saved& saved) const;
  Tensor backward(Context& context, Saved& saved) const;

 private:
  void loss(Context& context, const MicroBatch& batch, const Tensor& logits, const Tensor& targets,
            const Tensor& sums) const;
  TensorParallel tp_;
  Norm norm_;
  VocabPartAttr part_;
  Parameter* table_ = nullptr;  ///< [ceil(V / TP),H]
};

}  // namespace moetwin
