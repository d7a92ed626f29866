#include "core/parallel/fsdp.h"

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/parallel/shard_groups.h"

namespace moetwin {

namespace {
bool of_experts(const FlatGroup& group) { return group.reduction() == GroupKind::expert_dp; }
}  // namespace

Fsdp::Fsdp(Context& context, const Grid& grid, const DistributedConfig& config,
           std::vector<FlatGroup>& groups, GradientReducer* reducer)
    : reducer_(reducer),
      reshard_after_forward_(sharding_of(config).reshard_after_forward),
      forward_prefetch_(config.fsdp.forward_prefetch),
      overlap_(config.comm_optimization.gradient_reduction_overlap),
      prefetch_before_(config.fsdp.backward_prefetch == "BACKWARD_PRE"),
      prefetch_after_(config.fsdp.backward_prefetch == "BACKWARD_POST"),
      limit_(config.fsdp.limit_all_gathers),
      reduce_dtype_(config.fsdp.mixed_precision.reduce_dtype == "auto"
                        ? context.real()
                        : parse_dtype(config.fsdp.mixed_precision.reduce_dtype)) {
  const DeviceProperties& device = context.device.properties();
  const int64_t node = sharding_of(config).inside_node ? device.gpus_per_node : 0;
  const auto make = [&](const Group& group, const std::string& name) {
    return group.size() > 1 ? context.device.communicator(group, name) : nullptr;
  };
  for (FlatGroup& group : groups) {
    if (!group.shards_everything()) continue;
    if (stream_.id < 0) stream_ = context.device.stream("gather");
    Links& links = links_[group.reduction()];
    if (!links.gather) {
      // Apart by what they reduce over: their copies may be the same ranks.
      const std::string name = of_experts(group)                       ? "expert_"
                               : group.reduction() == GroupKind::stage ? "stage_"
                                                                       : "dense_";
      const ShardGroups among =
          shard_groups(grid.group(group.reduction(), device.rank), device.rank, node);
      links.gather = make(among.shard, name + "gather");
      links.scatter = make(among.shard, name + "scatter");
      links.copies = make(among.copies, name + "copies");
    }
    for (const FlatBucket& bucket : group.buckets()) {
      Unit& unit = units_[bucket.lowest_block];
      unit.block = bucket.lowest_block;
      (of_experts(group) ? unit.experts : unit.dense).push_back({&group, &bucket, &links, {}, {}});
    }
  }
}

Fsdp::Unit* Fsdp::unit(int64_t block) {
  const auto found = units_.find(block);
  return found == units_.end() ? nullptr : &found->second;
}

void Fsdp::attach(const Unit& unit, bool there) {
  for (const auto* parts : {&unit.dense, &unit.experts})
    for (const Part& part : *parts)
      part.group->attach_values(*part.bucket, there ? part.values : Tensor{});
}

void Fsdp::gather_part(Context& context, Part& part) {
  const FlatGroup& group = *part.group;
  const FlatBucket& bucket = *part.bucket;
  const int64_t begin = group.own_begin(bucket), count = group.own_count(bucket);
  part.values = context.memory.allocate({bucket.count}, group.value_dtype(),
                                        MemoryClass::parameters, "gathered parameters", stream_);
  const Tensor own = part.values.slice(begin - bucket.begin, {count});
  // Narrow parameters are made from the master share on the way, so none are kept.
  const Tensor share = group.share(context, bucket, own, stream_);
  part.links->gather->all_gather(share, part.values, stream_, "parameters");
}

void Fsdp::gather(Context& context, int64_t block, bool ahead) {
  Unit* wanted = unit(block);
  if (!wanted || wanted->state == State::gathered) return;
  if (wanted->state == State::let_go) {  // still in memory
    std::erase(let_go_, wanted);
  } else {
    // Beside this block there is the one at work, if this is ahead of it.
    const int64_t room = limit_ - (ahead ? 2 : 1);
    if (room < 0) return;
    while (static_cast<int64_t>(let_go_.size()) > room) return_oldest(context);
    if (fresh_) context.order(context.streams.compute, stream_);
    fresh_ = false;
    for (Part& part : wanted->dense) gather_part(context, part);
    wanted->dense_arrived = context.device.record(stream_);
    for (Part& part : wanted->experts) gather_part(context, part);
    wanted->experts_arrived = context.device.record(stream_);
  }
  wanted->state = State::gathered;
  attach(*wanted, true);
}

void Fsdp::let_go(Context& context, Unit& unit) {
  if (unit.state != State::gathered || unit.in_forward || unit.in_backward) return;
  attach(unit, false);
  unit.state = State::let_go;
  unit.last_use = context.device.record(context.streams.compute);
  let_go_.push_back(&unit);
}

void Fsdp::return_oldest(Context& context) {
  Unit& oldest = *let_go_.front();
  let_go_.pop_front();
  context.device.wait(stream_, oldest.last_use);
  for (auto* parts : {&oldest.dense, &oldest.experts})
    for (Part& part : *parts) part.values = {};
  oldest.state = State::away;
}

void Fsdp::before_forward(Context& context, int64_t block) {
  if (reducer_) reducer_->before_forward(context, block);
  gather(context, block, false);
  if (forward_prefetch_) gather(context, block + 1, true);
  Unit* now = unit(block);
  if (!now) return;
  now->in_forward = true;
  context.device.wait(context.streams.compute, now->dense_arrived);
}

void Fsdp::before_experts(Context& context, int64_t block) {
  if (Unit* now = unit(block)) context.device.wait(context.streams.compute, now->experts_arrived);
}

void Fsdp::after_forward(Context& context, int64_t block, bool backward) {
  Unit* done = unit(block);
  if (!done) return;
  done->in_forward = false;
  if (reshard_after_forward_ || !backward) let_go(context, *done);
}

void Fsdp::before_backward(Context& context, int64_t block, bool values) {
  Unit* now = unit(block);
  if (!now) return;
  if (values) {
    gather(context, block, false);
    now->in_backward = true;
    context.device.wait(context.streams.compute, now->dense_arrived);
  }
  // The embedding's backward reads no parameters.
  if (prefetch_before_ && block > 1) gather(context, block - 1, true);
  while (reducing_.size() > 1) {
    context.device.wait(context.streams.compute, reducing_.front().done);
    reducing_.pop_front();
  }
  for (auto* parts : {&now->dense, &now->experts})
    for (Part& part : *parts) {
      if (part.gradients.defined()) continue;
      part.gradients =
          context.memory.allocate({part.bucket->count}, context.real(), MemoryClass::gradients,
                                  "gradients of a unit", context.streams.compute);
      context.launch(fill(part.gradients, {}));
      part.group->attach_gradients(*part.bucket, part.gradients);
    }
}

void Fsdp::after_backward_input(Context& context, int64_t block) {
  Unit* done = unit(block);
  if (!done) return;
  if (prefetch_after_ && block > 1) gather(context, block - 1, true);
  done->in_backward = false;
  let_go(context, *done);
  ++done->owing;
}

void Fsdp::after_backward(Context& context, int64_t block) {
  Unit* done = unit(block);
  if (!done) return;
  if (done->owing == 0) {
    if (prefetch_after_ && block > 1) gather(context, block - 1, true);
    done->in_backward = false;
    let_go(context, *done);
  } else if (--done->owing > 0) {
    return;  // other micro-batches have begun to add to the same whole gradients
  }
  context.order(context.streams.compute, context.streams.reduction);
  Reducing reducing;
  for (auto* parts : {&done->experts, &done->dense})
    for (Part& part : *parts) {
      reduce_part(context, part);
      part.group->attach_gradients(*part.bucket, {});
      reducing.gradients.push_back(std::move(part.gradients));
      part.gradients = {};
    }
  reducing.done = context.device.record(context.streams.reduction);
  reducing_.push_back(std::move(reducing));
  if (!overlap_) context.device.wait(context.streams.compute, reducing_.back().done);
}

void Fsdp::reduce_part(Context& context, Part& part) {
  const FlatGroup& group = *part.group;
  const FlatBucket& bucket = *part.bucket;
  const int64_t begin = group.own_begin(bucket), count = group.own_count(bucket);
  const Stream stream = context.streams.reduction;
  const char* purpose = of_experts(group) ? "expert gradients" : "dense gradients";
  const Tensor kept = group.gradient(begin, count);
  const Tensor own = part.gradients.slice(begin - bucket.begin, {count});
  const Tensor target = part.reduced ? own : kept;
  Tensor whole = part.gradients, sum = target;
  if (reduce_dtype_ != whole.dtype) {
    whole = context.memory.allocate({bucket.count}, reduce_dtype_, MemoryClass::communication,
                                    "narrow gradients", stream);
    context.device.launch(cast(part.gradients, whole), stream);
    sum = whole.slice(begin - bucket.begin, {count});
  }
  part.links->scatter->reduce_scatter(whole, sum, ReduceOp::sum, stream, purpose);
  if (part.links->copies) part.links->copies->all_reduce(sum, sum, ReduceOp::sum, stream, purpose);
  if (sum.dtype != target.dtype) context.device.launch(cast(sum, target), stream);
  if (part.reduced) context.device.launch(scaled_add(own, kept, {}), stream);
  part.reduced = true;
}

void Fsdp::begin_step() {
  for (auto& [block, unit] : units_)
    for (auto* parts : {&unit.dense, &unit.experts})
      for (Part& part : *parts) part.reduced = false;
}

void Fsdp::finish(Context& context) {
  if (units_.empty()) return;
  context.order(context.streams.reduction, context.streams.compute);
  reducing_.clear();
  for (auto& [block, unit] : units_) let_go(context, unit);
  while (!let_go_.empty()) return_oldest(context);
  fresh_ = true;
}

}  // namespace moetwin
