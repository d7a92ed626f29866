#include "core/parallel/flat_parameters.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/parallel/shard_groups.h"

namespace moetwin {

namespace {
// Each parameter starts on 128 bytes of fp32, so that kernels can use their widest loads.
constexpr int64_t kAlign = 32;
int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

auto settings_of(const Parameter& p) { return std::make_tuple(p.kind, p.one_dimensional); }
}  // namespace

FlatGroup::FlatGroup(Context& context, std::vector<Parameter*> parameters, DType value_dtype,
                     GroupKind reduction, int64_t ranks, int64_t rank, bool owner, Shard shard,
                     bool on_host, int64_t bucket_bytes, bool momentum)
    : value_dtype_(value_dtype),
      reduction_(reduction),
      ranks_(ranks),
      rank_(rank),
      owner_(owner),
      shard_(ranks > 1 ? shard : Shard::nothing),
      real_(context.real()) {
  const DType real = context.real();
  if (shards_everything()) bucket_bytes = 1;
  std::stable_sort(parameters.begin(), parameters.end(),
                   [](const Parameter* a, const Parameter* b) { return a->block > b->block; });
  int64_t end = 0, state_end = 0;
  for (size_t first = 0; first < parameters.size();) {
    // A bucket is whole blocks, at least bucket_bytes of gradients but for the last.
    size_t last = first;
    int64_t elements = 0;
    while (last < parameters.size()) {
      const int64_t block = parameters[last]->block;
      if (elements * dtype_size(real) >= bucket_bytes && block != parameters[last - 1]->block)
        break;
      elements += round_up(parameters[last]->elements(), kAlign);
      ++last;
    }
    std::stable_sort(
        parameters.begin() + static_cast<int64_t>(first),
        parameters.begin() + static_cast<int64_t>(last),
        [](const Parameter* a, const Parameter* b) { return settings_of(*a) < settings_of(*b); });
    FlatBucket bucket;
    bucket.begin = end;
    bucket.lowest_block = parameters[first]->block;
    bucket.first_place = places_.size();
    for (size_t i = first; i < last; ++i) {
      Parameter& p = *parameters[i];
      bucket.lowest_block = std::min(bucket.lowest_block, p.block);
      places_.push_back({&p, end});
      const int64_t count = round_up(p.elements(), kAlign);
      if (!bucket.segments.empty() && bucket.segments.back().kind == p.kind &&
          bucket.segments.back().one_dimensional == p.one_dimensional) {
        bucket.segments.back().count += count;
      } else {
        bucket.segments.push_back({p.kind, p.one_dimensional, end, count});
      }
      end += count;
    }
    bucket.end_place = places_.size();
    bucket.count = round_up(end - bucket.begin, kAlign * ranks_);
    bucket.segments.back().count += bucket.begin + bucket.count - end;
    end = bucket.begin + bucket.count;
    bucket.state_begin = state_end;
    state_end += own_count(bucket);
    buckets_.push_back(std::move(bucket));
    first = last;
  }
  const auto make = [&](int64_t n, DType dtype, MemoryClass memory_class, const char* name) {
    return context.memory.allocate({n}, dtype, memory_class, name);
  };
  const bool narrow = value_dtype != real, everything = shards_everything();
  gradient_ = make(everything ? state_end : end, real, MemoryClass::gradients, "gradients");
  if (everything && on_host) {
    host_ = std::make_unique<HostState>(context, state_end, real, momentum);
    return;
  }
  if (narrow) master_ = make(state_end, real, MemoryClass::optimizer, "master parameters");
  if (!everything)
    value_ = make(end, value_dtype, MemoryClass::parameters, "parameters");
  else if (!narrow)
    value_ = make(state_end, value_dtype, MemoryClass::parameters, "sharded parameters");
  if (momentum) {
    m_ = make(state_end, real, MemoryClass::optimizer, "first moment");
    v_ = make(state_end, real, MemoryClass::optimizer, "second moment");
  }
  if (everything) return;
  for (const FlatPlace& place : places_) {
    place.parameter->value = value_.slice(place.begin, place.parameter->shape);
    place.parameter->gradient = gradient_.slice(place.begin, place.parameter->shape);
  }
}

int64_t FlatGroup::kept_at(int64_t begin) const {
  const auto after =
      std::upper_bound(buckets_.begin(), buckets_.end(), begin,
                       [](int64_t at, const FlatBucket& bucket) { return at < bucket.begin; });
  const FlatBucket& bucket = *std::prev(after);
  return bucket.state_begin + begin - own_begin(bucket);
}

Tensor FlatGroup::value(int64_t begin, int64_t count) const {
  if (!shards_everything()) return value_.slice(begin, {count});
  require(!host_, "values that are kept on the host are not on the device");
  return (master_.defined() ? master_ : value_).slice(kept_at(begin), {count});
}

FlatGroup::State FlatGroup::state(const FlatBucket& bucket, int64_t begin, int64_t count) const {
  const int64_t offset = begin - own_begin(bucket), at = bucket.state_begin + offset;
  State s;
  if (host_) {
    require(fetched_ == &bucket, "state on the host is used between fetch and put_back");
    s.weight = visiting_.weight.slice(offset, {count});
    if (visiting_.m.defined()) {
      s.m = visiting_.m.slice(offset, {count});
      s.v = visiting_.v.slice(offset, {count});
    }
    return s;
  }
  s.separate_master = master_.defined() && !shards_everything();
  s.weight = master_.defined() ? master_.slice(at, {count}) : value(begin, count);
  if (m_.defined()) {
    s.m = m_.slice(at, {count});
    s.v = v_.slice(at, {count});
  }
  return s;
}

void FlatGroup::fetch(Context& context, const FlatBucket& bucket) {
  if (!host_) return;
  fetched_ = &bucket;
  const auto bring = [&](HostState::Field field, Tensor& to, const char* name) {
    if (!host_->has(field)) return;
    to = context.memory.allocate({own_count(bucket)}, real_, MemoryClass::optimizer, name,
                                 context.streams.compute);
    host_->write(context, field, bucket.state_begin, to, context.streams.compute);
  };
  bring(HostState::weight, visiting_.weight, "weights from the host");
  bring(HostState::m, visiting_.m, "first moment from the host");
  bring(HostState::v, visiting_.v, "second moment from the host");
}

void FlatGroup::put_back(Context& context, const FlatBucket& bucket) {
  if (!host_) return;
  const auto take = [&](HostState::Field field, const Tensor& from) {
    if (from.defined())
      host_->read(context, field, bucket.state_begin, from, context.streams.compute);
  };
  take(HostState::weight, visiting_.weight);
  take(HostState::m, visiting_.m);
  take(HostState::v, visiting_.v);
  visiting_ = {};
  fetched_ = nullptr;
}

Tensor FlatGroup::share(Context& context, const FlatBucket& bucket, const Tensor& own,
                        Stream stream) const {
  const bool narrow = real_ != own.dtype;
  if (!host_) {
    const Tensor kept = state(bucket, own_begin(bucket), own_count(bucket)).weight;
    if (!narrow) return kept;
    context.device.launch(cast(kept, own), stream);
    return own;
  }
  if (!narrow) {
    host_->write(context, HostState::weight, bucket.state_begin, own, stream);
    return own;
  }
  const Tensor wide = context.memory.allocate(
      {own_count(bucket)}, real_, MemoryClass::communication, "share from the host", stream);
  host_->write(context, HostState::weight, bucket.state_begin, wide, stream);
  context.device.launch(cast(wide, own), stream);
  return own;
}

void FlatGroup::attach_values(const FlatBucket& bucket, const Tensor& whole) const {
  for (size_t i = bucket.first_place; i < bucket.end_place; ++i) {
    Parameter& p = *places_[i].parameter;
    p.value = whole.defined() ? whole.slice(places_[i].begin - bucket.begin, p.shape) : Tensor{};
  }
}

void FlatGroup::attach_gradients(const FlatBucket& bucket, const Tensor& whole) const {
  for (size_t i = bucket.first_place; i < bucket.end_place; ++i) {
    Parameter& p = *places_[i].parameter;
    p.gradient = whole.defined() ? whole.slice(places_[i].begin - bucket.begin, p.shape) : Tensor{};
  }
}

void FlatGroup::for_each_piece(Context& context,
                               const std::function<void(const StatePiece&)>& visit) {
  auto place = places_.begin();
  for (const FlatBucket& bucket : buckets_) {
    const int64_t own = own_begin(bucket), own_end = own + own_count(bucket);
    fetch(context, bucket);
    for (; place != places_.end() && place->begin < bucket.begin + bucket.count; ++place) {
      const int64_t begin = std::max(own, place->begin);
      const int64_t count = std::min(own_end, place->begin + place->parameter->placed()) - begin;
      if (count <= 0) continue;
      const State kept = state(bucket, begin, count);
      visit({place->parameter, begin - place->begin, count, kept.weight, kept.m, kept.v,
             counts_in_norm()});
    }
    put_back(context, bucket);
  }
}

namespace {
void draw(Context& context, const Parameter& p, const Tensor& target) {
  if (p.init_std > 0) {
    InitAttr attr;
    attr.key = philox_key(context.seed, Purpose::init, 0, p.init_stream);
    attr.std = p.init_std;
    for (size_t i = 0; i < 3; ++i) {
      attr.global[i] = p.global[i];
      attr.offset[i] = p.offset[i];
      attr.local[i] = p.local[i];
    }
    // Column ranges of a split weight one after the other; what is padding stays zero.
    const Tensor placed = target.slice(0, {p.placed()});
    attr.pitch = p.local[2];
    std::vector<ColumnRange> ranges = p.columns;
    if (ranges.empty()) ranges.push_back({p.offset[2], 0, p.local[2]});
    for (const ColumnRange& range : ranges) {
      attr.offset[2] = range.global;
      attr.local[2] = range.count;
      attr.column = range.local;
      if (p.placed() > 0) context.launch(init_normal(placed, attr));
    }
  } else if (p.init_value != 0) {
    FillAttr attr;
    attr.value = p.init_value;
    context.launch(fill(target, attr));
  }
}
}  // namespace

void FlatGroup::initialise(Context& context) {
  context.launch(fill(gradient_, {}));
  for (const Tensor& state : {m_, v_})
    if (state.defined()) context.launch(fill(state, {}));
  if (shards_everything()) {
    for (const FlatBucket& bucket : buckets_) {
      const Tensor whole = context.memory.allocate({bucket.count}, context.real(),
                                                   MemoryClass::workspace, "initial weights");
      context.launch(fill(whole, {}));
      for (size_t i = bucket.first_place; i < bucket.end_place; ++i) {
        const Parameter& p = *places_[i].parameter;
        draw(context, p, whole.slice(places_[i].begin - bucket.begin, p.shape));
      }
      const int64_t begin = own_begin(bucket), count = own_count(bucket);
      fetch(context, bucket);
      context.launch(
          copy(whole.slice(begin - bucket.begin, {count}), state(bucket, begin, count).weight));
      put_back(context, bucket);
    }
    return;
  }
  // Drawn wide into the gradients, which are cleared afterwards: master copies must not start from
  // rounded values.
  const bool narrow = master_.defined();
  if (!narrow) context.launch(fill(value_, {}));
  for (const FlatPlace& place : places_)
    draw(context, *place.parameter, narrow ? place.parameter->gradient : place.parameter->value);
  if (!narrow) return;
  context.launch(cast(gradient_, value_));
  for (const FlatBucket& bucket : buckets_)
    context.launch(copy(gradient(own_begin(bucket), own_count(bucket)),
                        master_.slice(bucket.state_begin, {own_count(bucket)})));
  context.launch(fill(gradient_, {}));
}

std::vector<FlatGroup> make_flat_groups(Context& context, ParameterSet& parameters,
                                        const Grid& grid, const DistributedConfig& config,
                                        bool momentum) {
  // Tied embeddings apart, so that both stages cut them alike.
  std::map<std::tuple<GroupKind, DType, bool, bool>, std::vector<Parameter*>> sorted;
  for (Parameter& p : parameters.all()) {
    const DType dtype = p.kind == ParameterKind::router ? context.real() : context.dtype;
    sorted[{p.reduction_group(), dtype, p.copied(), p.pipeline == AxisUse::summed}].push_back(&p);
  }
  const DeviceProperties& device = context.device.properties();
  const bool lowest = grid.coordinates(device.rank).tp == 0;
  const Sharding& sharding = sharding_of(config);
  std::vector<FlatGroup> groups;
  for (auto& [key, members] : sorted) {
    const auto [reduction, dtype, copied, tied] = key;
    const ShardGroups among = shard_groups(grid.group(reduction, device.rank), device.rank,
                                           sharding.inside_node ? device.gpus_per_node : 0);
    // Of tied embeddings the first stage is the owner.
    const bool owner = among.copies.index_of(device.rank) == 0 && (!copied || lowest) &&
                       !(tied && grid.coordinates(device.rank).pp > 0);
    groups.emplace_back(context, std::move(members), dtype, reduction, among.shard.size(),
                        among.shard.index_of(device.rank), owner, sharding.shard,
                        config.fsdp.cpu_offload, config.comm_optimization.gradient_bucket_bytes,
                        momentum);
  }
  return groups;
}

}  // namespace moetwin
