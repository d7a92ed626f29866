#pragma once
// Balance of load over a step: losses and their records, counts of the whole step, the balance bias
// (semantics 4); and what routing keeps from step to step.

#include <cstdint>
#include <string>
#include <vector>

#include "core/nn/context.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// A tensor that lives from step to step and is no parameter (PyTorch: a buffer). `name` is global;
/// its values are the same on all ranks that have it.
struct RoutingState {
  std::string name;
  Tensor tensor;
  bool by_layer = false;  ///< the last extent but one is this rank's MoE layers
};

/// The bias that selection adds, real [L,E].
inline constexpr const char* kBalanceBias = "balance.bias";

/// One per rank; shared by the routers of all MoE layers of that rank.
class BalanceState {
 public:
  /// `layers`: model layer number of each MoE layer of this rank, ascending. `losses` real [L (4 +
  /// E)]: kept by the trainer beside the other figures of a step. `data_parallel`: group over which
  /// counts are summed, on the compute stream; null when it has one member.
  BalanceState(Context& context, const ModelConfig& model, std::vector<int64_t> layers,
               const Tensor& losses, Communicator* data_parallel);

  /// Forgets the counts and records of the step before; the trainer clears the losses.
  void begin_step();
  /// Factors of router_losses and router_backward for this micro-batch: each coefficient / MoE
  /// layers of the model x share x loss scale.
  struct Factors {
    double aux, z, importance;
  };
  Factors factors(const MicroBatch& batch) const;
  /// real [4 + E] of one MoE layer, to be added to by router_losses.
  Tensor losses(int64_t moe_layer) const;

  /// After a router's forward: leaves the one record of (layer, micro-batch) and adds the counts of
  /// the step.
  void record(Context& context, int64_t moe_layer, const MicroBatch& batch, const Tensor& counts);
  /// global_batch scope: counts of this step so far over the data-parallel group, i64 [E]
  /// (control), and the tokens behind them.
  Tensor global_counts(Context& context, int64_t moe_layer, const MicroBatch& batch,
                       double& tokens);
  /// Throws Error(internal) naming the layer whose number of records is not `micro_batches`.
  void check_records(int64_t micro_batches) const;

  /// real [E] that selection adds to the scores of a layer, or undefined without aux-loss-free
  /// balance.
  Tensor bias(int64_t moe_layer) const;
  /// b_i += rate * sign(mean n - n_i) from the counts of the whole global batch, once per optimizer
  /// step; `step` from 1. With bias_update_delay_steps d the counts are those of step - d, and
  /// nothing moves while step <= d. With bias_count_ema the sign is that of the average excess.
  void update_bias(Context& context, int64_t step);

  /// Adds a tensor of zeros, of the sums' dtype, to state().
  Tensor add_state(const std::string& name, const Shape& shape);
  /// All that routing carries from step to step, in the order in which it was added: the balance
  /// bias ("balance.bias" real [L,E]), late counts ("balance.counts" i64 [d+1,L,E]: those of step t
  /// in row t mod (d+1)), the average excess ("balance.excess" real [L,E]), and each router's late
  /// weights. To go on from a checkpoint all of it must be put back, and the step number.
  const std::vector<RoutingState>& state() const { return state_; }

  bool global_scope() const { return config_.aux_loss_scope == "global_batch"; }
  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
  int64_t layer_number(int64_t moe_layer) const { return layers_[static_cast<size_t>(moe_layer)]; }
  /// Place of model layer `layer` among this rank's MoE layers: `moe_layer` of the calls above.
  int64_t index_of(int64_t layer) const;

 private:
  MoeLayerConfig config_;
  int64_t model_moe_layers_;
  std::vector<int64_t> layers_;
  std::vector<int64_t> records_;
  Communicator* data_parallel_;
  Tensor losses_;       ///< real [L (4 + E)]
  Tensor step_counts_;  ///< i64 [L,E] (control): this rank's, all micro-batches so far
  Tensor global_;       ///< i64 [L,E] (control): scratch of sums over ranks
  std::vector<RoutingState> state_;
  Tensor bias_;         ///< real [L,E]
  Tensor late_counts_;  ///< i64 [d+1,L,E] (control); undefined where nothing is late
  Tensor excess_;       ///< real [L,E]; undefined without an average
  Context& context_;
};

/// C = ceil(cf T k / E), at least min_capacity, in integers (cf is taken to six decimals); -1
/// without a capacity factor.
int64_t expert_capacity(const MoeLayerConfig& config, int64_t tokens);

}  // namespace moetwin
