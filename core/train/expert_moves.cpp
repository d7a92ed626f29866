#include "core/train/expert_moves.h"

#include "core/base/error.h"

namespace moetwin {

ExpertMoves::ExpertMoves(Context& context, const Scenario& scenario, const Grid& grid,
                         const Communicators& communicators, std::vector<FlatGroup>& groups,
                         Model& model)
    : context_(context),
      config_(scenario.rebalancing),
      copies_(communicators.expert_dp.get()),
      groups_(groups) {
  if (config_.kind != "placement") return;
  for (ModelChunk& chunk : model.chunks())
    for (TransformerLayer& layer : chunk.layers())
      if (layer.is_moe()) layers_.push_back(layer.moe());
  shape_.ranks = grid.ep();
  shape_.groups = scenario.routing.groups;
  shape_.threshold = config_.imbalance_threshold;
  const int64_t on_node = context.device.properties().gpus_per_node;
  if (grid.ep() % on_node == 0) shape_.nodes = grid.ep() / on_node;
}

std::vector<std::vector<double>> ExpertMoves::loads() const {
  std::vector<std::vector<double>> loads;
  for (const MoeLayer* layer : layers_) loads.push_back(layer->rebalancer()->take_loads());
  if (!copies_) return loads;
  std::vector<int64_t> counts;
  for (const std::vector<double>& of_layer : loads)
    for (const double rows : of_layer) counts.push_back(static_cast<int64_t>(rows));
  const Tensor sum =
      context_.memory.allocate({static_cast<int64_t>(counts.size())}, DType::i64,
                               MemoryClass::control, "expert counts of the interval");
  const Streams& streams = context_.streams;
  context_.device.write(sum, counts.data(), streams.compute);
  context_.order(streams.compute, streams.reduction);
  copies_->all_reduce(sum, sum, ReduceOp::sum, streams.reduction, "expert counts");
  context_.to_host(sum, counts.data(), streams.reduction);
  auto next = counts.begin();
  for (std::vector<double>& of_layer : loads)
    for (double& rows : of_layer) rows = static_cast<double>(*next++);
  return loads;
}

std::vector<Tensor> ExpertMoves::state_of(const Parameter& parameter) const {
  for (const FlatGroup& group : groups_)
    for (const FlatBucket& bucket : group.buckets())
      for (size_t i = bucket.first_place; i < bucket.end_place; ++i) {
        const FlatPlace& place = group.places()[i];
        if (place.parameter != &parameter) continue;
        require(!group.sharded(), "experts that move have their whole state on a rank");
        const FlatGroup::State state = group.state(bucket, place.begin, parameter.elements());
        std::vector<Tensor> tensors{parameter.value};
        if (state.separate_master) tensors.push_back(state.weight);
        if (state.m.defined()) tensors.insert(tensors.end(), {state.m, state.v});
        for (Tensor& tensor : tensors) tensor = tensor.reshaped(parameter.shape);
        return tensors;
      }
  throw Error(ErrorClass::internal, "a parameter without a place in the flat groups");
}

void ExpertMoves::after_step(int64_t step) {
  if (layers_.empty() || step % config_.interval_steps != 0) return;
  const PhaseScope phase(context_.device, context_.phase, Phase::optimizer, "moving experts");
  const std::vector<std::vector<double>> interval = loads();
  for (size_t l = 0; l < layers_.size(); ++l) {
    Rebalancer& rebalancer = *layers_[l]->rebalancer();
    const ExpertPlaces& now = rebalancer.places();
    const ExpertPlaces next = choose_places(interval[l], now, shape_);
    if (next == now) continue;
    const int64_t local = static_cast<int64_t>(now.size()) / shape_.ranks;
    const int64_t first = rebalancer.ep().rank() * local;
    for (Parameter* parameter : layers_[l]->experts().parameters()) {
      move_experts(context_, rebalancer.ep(), now, next, state_of(*parameter));
      parameter->experts.resize(static_cast<size_t>(local));
      for (size_t e = 0; e < next.size(); ++e)
        if (next[e] / local == rebalancer.ep().rank())
          parameter->experts[static_cast<size_t>(next[e] - first)] = static_cast<int64_t>(e);
    }
    rebalancer.move(next);
  }
}

}  // namespace moetwin
