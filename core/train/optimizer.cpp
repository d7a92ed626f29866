#include "core/train/optimizer.h"

#include <algorithm>

#include "core/ops/elementwise.h"
#include "core/ops/optimizer.h"
#include "core/train/schedule.h"

namespace moetwin {

Optimizer::Optimizer(const TrainingConfig& config, std::vector<FlatGroup>& groups,
                     Communicator* world, double nominal_tokens)
    : config_(config), groups_(groups), world_(world), nominal_tokens_(nominal_tokens) {}

const ParameterKindConfig& Optimizer::of(ParameterKind kind) const {
  switch (kind) {
    case ParameterKind::router:
      return config_.router;
    case ParameterKind::expert:
      return config_.expert;
    case ParameterKind::embedding:
      return config_.embedding;
    case ParameterKind::dense:
      break;
  }
  return config_.dense;
}

double Optimizer::learning_rate(ParameterKind kind, int64_t step) const {
  const ParameterKindConfig& own = of(kind);
  const Schedule& schedule = own.schedule ? *own.schedule : config_.schedule;
  return config_.learning_rate * own.learning_rate_multiplier *
         schedule_factor(schedule, step, config_.steps);
}

double Optimizer::weight_decay(const FlatSegment& segment) const {
  if (segment.one_dimensional && !config_.decay_one_dimensional) return 0;
  return config_.weight_decay * of(segment.kind).weight_decay_multiplier;
}

void Optimizer::measure(Context& context, const Tensor& totals, const Tensor& factor,
                        double loss_scale) const {
  const Tensor squares = totals.slice(0, {1});
  context.launch(fill(squares, {}));
  for (const FlatGroup& group : groups_) {
    if (!group.counts_in_norm()) continue;
    if (!group.sharded()) {
      context.launch(sum_squares(group.gradients(), squares));
      continue;
    }
    for (const FlatBucket& bucket : group.buckets())
      context.launch(
          sum_squares(group.gradient(group.own_begin(bucket), group.own_count(bucket)), squares));
  }
  if (world_)
    world_->all_reduce(totals, totals, ReduceOp::sum, context.streams.compute, "gradient norm");
  ClipAttr attr;
  attr.max_norm = config_.max_grad_norm;
  attr.nominal_tokens = nominal_tokens_ / loss_scale;
  context.launch(clip_factor(totals, factor, attr));
}

void Optimizer::update(Context& context, const Tensor& factor, int64_t step,
                       int64_t updates) const {
  const Tensor scale = factor.slice(0, {1});
  for (FlatGroup& group : groups_) {
    for (const FlatBucket& bucket : group.buckets()) {
      const int64_t own_begin = group.own_begin(bucket),
                    own_end = own_begin + group.own_count(bucket);
      group.fetch(context, bucket);
      for (const FlatSegment& segment : bucket.segments) {
        const int64_t begin = std::max(own_begin, segment.begin);
        const int64_t count = std::min(own_end, segment.begin + segment.count) - begin;
        if (count <= 0) continue;
        const FlatGroup::State state = group.state(bucket, begin, count);
        const Tensor gradient = group.gradient(begin, count);
        if (has_momentum()) {
          AdamWAttr attr;
          attr.learning_rate = learning_rate(segment.kind, step);
          attr.beta1 = config_.beta1;
          attr.beta2 = config_.beta2;
          attr.epsilon = config_.adam_epsilon;
          attr.weight_decay = weight_decay(segment);
          attr.step = updates;
          context.launch(adamw(state.weight, gradient, state.m, state.v, scale, attr));
        } else {
          SgdAttr attr;
          attr.learning_rate = learning_rate(segment.kind, step);
          attr.weight_decay = weight_decay(segment);
          context.launch(sgd(state.weight, gradient, scale, attr));
        }
        if (state.separate_master) context.launch(cast(state.weight, group.value(begin, count)));
      }
      group.put_back(context, bucket);
    }
  }
}

}  // namespace moetwin
