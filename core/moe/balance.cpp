#include "core/moe/balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/router.h"

namespace moetwin {

BalanceState::BalanceState(Context& context, const ModelConfig& model, std::vector<int64_t> layers,
                           const Tensor& losses, Communicator* data_parallel)
    : config_(model.moe_layer_config),
      model_moe_layers_(model.num_moe_layers()),
      layers_(std::move(layers)),
      records_(layers_.size(), 0),
      data_parallel_(data_parallel),
      losses_(losses),
      context_(context) {
  const int64_t n = this->layers(), experts = config_.num_experts;
  if (n == 0) return;
  step_counts_ = context.memory.allocate({n, experts}, DType::i64, MemoryClass::control,
                                         "expert counts of the step");
  global_ = context.memory.allocate({n, experts}, DType::i64, MemoryClass::control,
                                    "expert counts over ranks");
  context.launch(fill(step_counts_, {}));
  if (config_.bias_update_rate == 0) return;
  bias_ = add_state(kBalanceBias, {n, experts});
  state_.back().by_layer = true;
  if (config_.bias_count_ema > 0) {
    excess_ = add_state("balance.excess", {n, experts});
    state_.back().by_layer = true;
  }
  if (config_.bias_update_delay_steps == 0) return;
  late_counts_ = context.memory.allocate({config_.bias_update_delay_steps + 1, n, experts},
                                         DType::i64, MemoryClass::control, "late expert counts");
  context.launch(fill(late_counts_, {}));
  state_.push_back({"balance.counts", late_counts_, true});
}

Tensor BalanceState::add_state(const std::string& name, const Shape& shape) {
  const Tensor tensor =
      context_.memory.allocate(shape, context_.real(), MemoryClass::router, "routing state");
  context_.launch(fill(tensor, {}));
  state_.push_back({name, tensor});
  return tensor;
}

void BalanceState::begin_step() {
  if (layers_.empty()) return;
  context_.launch(fill(step_counts_, {}));
  std::fill(records_.begin(), records_.end(), 0);
}

BalanceState::Factors BalanceState::factors(const MicroBatch& batch) const {
  const double share = batch.loss_scale * batch.share / static_cast<double>(model_moe_layers_);
  return {config_.aux_loss_factor * share, config_.z_loss_factor * share,
          config_.importance_loss_factor * share};
}

Tensor BalanceState::losses(int64_t moe_layer) const {
  const int64_t n = 4 + config_.num_experts;
  return losses_.slice(moe_layer * n, {n});
}

void BalanceState::record(Context& context, int64_t moe_layer, const MicroBatch& batch,
                          const Tensor& counts) {
  if (!batch.training) return;
  ++records_[static_cast<size_t>(moe_layer)];
  const int64_t experts = config_.num_experts;
  context.launch(accumulate_counts(counts.slice(0, {experts}),
                                   step_counts_.slice(moe_layer * experts, {experts})));
}

Tensor BalanceState::global_counts(Context& context, int64_t moe_layer, const MicroBatch& batch,
                                   double& tokens) {
  const int64_t experts = config_.num_experts;
  const Tensor mine = step_counts_.slice(moe_layer * experts, {experts});
  // A copy per micro-batch: its backward needs the counts gathered when its forward ran.
  Tensor sum = context.memory.allocate({experts}, DType::i64, MemoryClass::control,
                                       "expert counts over ranks");
  const int64_t ranks = data_parallel_ ? data_parallel_->size() : 1;
  tokens = static_cast<double>((batch.index + 1) * batch.tokens() * ranks);
  if (data_parallel_) {
    data_parallel_->all_reduce(mine, sum, ReduceOp::sum, context.streams.compute, "expert counts");
  } else {
    context.launch(copy(mine, sum));
  }
  return sum;
}

void BalanceState::check_records(int64_t micro_batches) const {
  for (size_t i = 0; i < records_.size(); ++i)
    if (records_[i] != micro_batches)
      throw Error(
          ErrorClass::internal,
          fmt::format("balance records of layer {}: {} were left, {} micro-batches were run",
                      layers_[i], records_[i], micro_batches));
}

int64_t BalanceState::index_of(int64_t layer) const {
  const auto found = std::lower_bound(layers_.begin(), layers_.end(), layer);
  require(found != layers_.end() && *found == layer, "a MoE layer of this rank");
  return found - layers_.begin();
}

Tensor BalanceState::bias(int64_t moe_layer) const {
  if (!bias_.defined()) return {};
  return bias_.slice(moe_layer * config_.num_experts, {config_.num_experts});
}

void BalanceState::update_bias(Context& context, int64_t step) {
  if (!bias_.defined()) return;
  const int64_t all = layers() * config_.num_experts, delay = config_.bias_update_delay_steps;
  // Row t mod (d+1) of the late counts: written now, and read d steps later, just before the next
  // one takes its place.
  const auto late = [&](int64_t t) {
    return late_counts_.slice(t % (delay + 1) * all, step_counts_.shape);
  };
  const Tensor sum = delay > 0 ? late(step) : data_parallel_ ? global_ : step_counts_;
  if (data_parallel_) {
    data_parallel_->all_reduce(step_counts_, sum, ReduceOp::sum, context.streams.compute,
                               "expert counts");
  } else if (delay > 0) {
    context.launch(copy(step_counts_, sum));
  }
  if (step <= delay) return;
  const Tensor counts = delay > 0 ? late(step - delay) : sum;
  BiasUpdateAttr attr;
  attr.rate = config_.bias_update_rate;
  attr.ema = config_.bias_count_ema;
  const int64_t experts = config_.num_experts;
  for (int64_t l = 0; l < layers(); ++l) {
    const auto of_layer = [&](const Tensor& t) { return t.slice(l * experts, {experts}); };
    context.launch(balance_bias_update(of_layer(counts), bias(l),
                                       excess_.defined() ? of_layer(excess_) : Tensor{}, attr));
  }
}

int64_t expert_capacity(const MoeLayerConfig& config, int64_t tokens) {
  if (!config.capacity_factor) return -1;
  // 1.1 * 1000 / 10 is 110, not ceil(110.00000000000001) = 111: the factor is a rational with
  // denominator 10^6.
  const int64_t million = 1'000'000;
  const int64_t factor = std::max<int64_t>(1, std::llround(*config.capacity_factor * million));
  const int64_t numerator = factor * tokens * config.top_k;
  const int64_t denominator = million * config.num_experts;
  const int64_t capacity = (numerator + denominator - 1) / denominator;
  return std::max(capacity, config.min_capacity);
}

}  // namespace moetwin
