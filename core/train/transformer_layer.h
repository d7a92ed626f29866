#pragma once
// One pre-norm transformer layer: x + attention(norm(x)), then + FFN or MoE of the next norm. Under
// TP x has all tokens on every rank of the group; with sequence parallelism each has its slice.

#include <optional>

#include "core/moe/balance.h"
#include "core/moe/layer.h"
#include "core/nn/attention.h"
#include "core/nn/dropout.h"
#include "core/nn/ffn.h"
#include "core/nn/norm.h"
#include "core/nn/tensor_parallel.h"
#include "core/parallel/communicators.h"
#include "core/scenario/scenario.h"
#include "core/topology/grid.h"

namespace moetwin {

/// What building a layer needs to know of the rank.
struct LayerSetup {
  const Scenario& scenario;
  const Grid& grid;
  Coordinates at;
  const Communicators& communicators;
  BalanceState& balance;
  std::shared_ptr<const RoutingTrace> trace;
  TensorParallel tp{};
  /// Where rows are worked on, whatever is counted; null: as the scenario's rebalancing decides.
  std::shared_ptr<const ExpertPlan> plan{};
};

/// What training_config.recompute leaves out of what a layer keeps for its backward.
struct Recompute {
  bool full = false;               ///< all but the input, the routing and the plan of the dispatch
  bool ends_early = false;         ///< with full: recompute_ends_early
  bool attention_core = false;     ///< output and log-sum-exp of attention
  bool expert_activation = false;  ///< the experts' hidden values
  /// All but the input, attention's output and every other product: PyTorch's selective
  /// checkpointing by op, as torchtitan has it. Without numerics, of dense layers.
  bool alternate_products = false;
};
Recompute recompute_of(const Scenario& scenario);

class TransformerLayer {
 public:
  struct Saved {
    Tensor x;                         ///< input of the layer, where all else is recomputed
    Tensor products;                  ///< of alternate_products
    Tensor attention_mask, ffn_mask;  ///< of dropout, where a framework keeps them
    Norm::Saved attention_norm, ffn_norm;
    Attention::Saved attention;
    Ffn::Saved ffn;
    MoeLayer::Saved moe;
  };
  TransformerLayer(ParameterSet& parameters, const LayerSetup& setup, int64_t layer);

  Tensor forward(Context& context, const MicroBatch& batch, const Tensor& x, Saved& saved);
  Tensor backward(Context& context, const MicroBatch& batch, const Tensor& dy, Saved& saved);
  bool is_moe() const { return moe_.has_value(); }
  MoeLayer* moe() { return moe_ ? &*moe_ : nullptr; }

 private:
  Tensor run(Context& context, const MicroBatch& batch, const Tensor& x, Saved& saved);
  /// The forward again, as far as the backward needs it.
  void run_again(Context& context, const MicroBatch& batch, Saved& saved);
  /// From the input to what the FFN or experts read, and to the residual beside it.
  struct Middle {
    Tensor normed, residual;
  };
  template <class Attend>
  Middle to_ffn(Context& context, const MicroBatch& batch, const Tensor& x, Saved& saved,
                const Attend& attend);
  void remake(Context& context, const MicroBatch& batch, Saved& saved);
  /// Drops what the backward makes again.
  void forget(const Context& context, const Tensor& x, Saved& saved) const;

  int64_t layer_ = 0;
  Recompute recompute_;
  TensorParallel tp_;
  Norm attention_norm_, ffn_norm_;
  Attention attention_;
  Dropout attention_dropout_, ffn_dropout_;
  std::optional<Ffn> ffn_;
  std::optional<MoeLayer> moe_;
};

}  // namespace moetwin
