#include "core/parallel/gradient_reducer.h"

#include <algorithm>
#include <optional>

#include "core/ops/elementwise.h"

namespace moetwin {

GradientReducer::GradientReducer(std::vector<FlatGroup>& groups, const Communicators& communicators,
                                 bool overlap, bool beside_forward)
    : groups_(groups),
      communicators_(communicators),
      overlap_(overlap),
      beside_forward_(beside_forward),
      next_(groups.size(), 0) {}

void GradientReducer::reduce(Context& context, FlatGroup& group, const FlatBucket& bucket) {
  Communicator* communicator = communicators_.reduction(group.reduction());
  if (!communicator || group.shards_everything()) return;
  const Tensor all = group.gradient(bucket.begin, bucket.count);
  const char* purpose =
      group.reduction() == GroupKind::expert_dp ? "expert gradients" : "dense gradients";
  context.order(context.streams.compute, context.streams.reduction);
  if (group.sharded()) {
    communicator->reduce_scatter(all,
                                 group.gradient(group.own_begin(bucket), group.own_count(bucket)),
                                 ReduceOp::sum, context.streams.reduction, purpose);
  } else {
    communicator->all_reduce(all, all, ReduceOp::sum, context.streams.reduction, purpose);
  }
}

void GradientReducer::begin_step(Context& context) {
  for (FlatGroup& group : groups_)
    if (!group.shards_everything()) context.launch(fill(group.gradients(), {}));
}

void GradientReducer::block_done(Context& context, int64_t block) {
  if (!overlap_) return;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& buckets = groups_[g].buckets();
    while (next_[g] < buckets.size() && buckets[next_[g]].lowest_block >= block)
      reduce(context, groups_[g], buckets[next_[g]++]);
  }
}

void GradientReducer::finish(Context& context) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& buckets = groups_[g].buckets();
    while (next_[g] < buckets.size()) reduce(context, groups_[g], buckets[next_[g]++]);
    next_[g] = 0;
  }
  if (communicators_.embedding) sum_tied(context);
  context.order(context.streams.reduction, context.streams.compute);
}

void GradientReducer::sum_tied(Context& context) {
  context.order(context.streams.compute, context.streams.reduction);
  for (const FlatGroup& group : groups_) {
    if (!group.tied()) continue;
    for (const FlatBucket& bucket : group.buckets()) {
      const Tensor own = group.gradient(group.own_begin(bucket), group.own_count(bucket));
      communicators_.embedding->all_reduce(own, own, ReduceOp::sum, context.streams.reduction,
                                           "tied embedding gradients");
    }
  }
}

void GradientReducer::gather_parameters(Context& context) {
  struct Gather {
    FlatGroup* group;
    const FlatBucket* bucket;
    Communicator* communicator;
  };
  std::vector<Gather> gathers;
  for (FlatGroup& group : groups_) {
    Communicator* communicator = communicators_.reduction(group.reduction());
    if (!group.sharded() || group.shards_everything() || !communicator) continue;
    for (const FlatBucket& bucket : group.buckets())
      gathers.push_back({&group, &bucket, communicator});
  }
  if (gathers.empty()) return;
  // What the forward reads first.
  if (beside_forward_)
    std::stable_sort(gathers.begin(), gathers.end(), [](const Gather& a, const Gather& b) {
      return a.bucket->lowest_block < b.bucket->lowest_block;
    });
  const Stream stream = context.streams.reduction;
  context.order(context.streams.compute, stream);
  for (const auto& [group, bucket, communicator] : gathers) {
    communicator->all_gather(group->value(group->own_begin(*bucket), group->own_count(*bucket)),
                             group->value(bucket->begin, bucket->count), stream, "parameters");
    if (beside_forward_) gathered_.push_back({bucket->lowest_block, context.device.record(stream)});
  }
  if (!beside_forward_) context.order(stream, context.streams.compute);
}

void GradientReducer::before_forward(Context& context, int64_t block) {
  std::optional<Event> last;
  for (; !gathered_.empty() && gathered_.front().lowest_block <= block; gathered_.pop_front())
    last = gathered_.front().done;
  if (last) context.device.wait(context.streams.compute, *last);
}

void GradientReducer::weights_changed(Context& context) {
  for (FlatGroup& group : groups_) {
    if (group.shards_everything()) continue;  // gathered anew before the next use
    for (const FlatBucket& bucket : group.buckets()) {
      const int64_t begin = group.own_begin(bucket), count = group.own_count(bucket);
      const FlatGroup::State state = group.state(bucket, begin, count);
      if (state.separate_master) context.launch(cast(state.weight, group.value(begin, count)));
    }
  }
  gather_parameters(context);
}

}  // namespace moetwin
