#include "core/parallel/flat_parameters.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/scenario/sharding.h"

namespace moetwin {

namespace {
// Each parameter starts on 128 bytes of fp32, so that kernels can use their widest loads.
constexpr int64_t kAlign = 32;
int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

auto settings_of(const Parameter& p) { return std::make_tuple(p.kind, p.one_dimensional); }
}  // namespace

FlatGroup::FlatGroup(Context& context, std::vector<Parameter*> parameters, DType value_dtype,
                     GroupKind reduction, int64_t ranks, int64_t rank, bool sharded,
                     int64_t bucket_bytes, bool momentum)
    : reduction_(reduction), ranks_(ranks), rank_(rank), sharded_(sharded && ranks > 1) {
  const DType real = context.real();
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
  value_ = make(end, value_dtype, MemoryClass::parameters, "parameters");
  gradient_ = make(end, real, MemoryClass::gradients, "gradients");
  if (value_dtype != real)
    master_ = make(state_end, real, MemoryClass::optimizer, "master parameters");
  if (momentum) {
    m_ = make(state_end, real, MemoryClass::optimizer, "first moment");
    v_ = make(state_end, real, MemoryClass::optimizer, "second moment");
  }
  for (const FlatPlace& place : places_) {
    place.parameter->value = value_.slice(place.begin, place.parameter->shape);
    place.parameter->gradient = gradient_.slice(place.begin, place.parameter->shape);
  }
}

FlatGroup::State FlatGroup::state(const FlatBucket& bucket, int64_t begin, int64_t count) const {
  const int64_t at = bucket.state_begin + begin - own_begin(bucket);
  State s;
  s.separate_master = master_.defined();
  s.weight = s.separate_master ? master_.slice(at, {count}) : value(begin, count);
  if (m_.defined()) {
    s.m = m_.slice(at, {count});
    s.v = v_.slice(at, {count});
  }
  return s;
}

void FlatGroup::for_each_piece(Context&, const std::function<void(const StatePiece&)>& visit) {
  auto place = places_.begin();
  for (const FlatBucket& bucket : buckets_) {
    const int64_t own = own_begin(bucket), own_end = own + own_count(bucket);
    for (; place != places_.end() && place->begin < bucket.begin + bucket.count; ++place) {
      const int64_t begin = std::max(own, place->begin);
      const int64_t count = std::min(own_end, place->begin + place->parameter->elements()) - begin;
      if (count <= 0) continue;
      const State kept = state(bucket, begin, count);
      visit({place->parameter, begin - place->begin, count, kept.weight, kept.m, kept.v,
             counts_in_norm()});
    }
  }
}

void FlatGroup::initialise(Context& context) {
  // Drawn wide into the gradients, which are cleared afterwards: master copies must not start from
  // rounded values.
  const bool narrow = master_.defined();
  context.launch(fill(gradient_, {}));
  if (!narrow) context.launch(fill(value_, {}));
  for (const FlatPlace& place : places_) {
    const Parameter& p = *place.parameter;
    const Tensor target = narrow ? p.gradient : p.value;
    if (p.init_std > 0) {
      InitAttr attr;
      attr.key = philox_key(context.seed, Purpose::init, 0, p.init_stream);
      attr.std = p.init_std;
      for (size_t i = 0; i < 3; ++i) {
        attr.global[i] = p.global[i];
        attr.offset[i] = p.offset[i];
        attr.local[i] = p.local[i];
      }
      context.launch(init_normal(target, attr));
    } else if (p.init_value != 0) {
      FillAttr attr;
      attr.value = p.init_value;
      context.launch(fill(target, attr));
    }
  }
  if (narrow) {
    context.launch(cast(gradient_, value_));
    for (const FlatBucket& bucket : buckets_)
      context.launch(copy(gradient(own_begin(bucket), own_count(bucket)),
                          master_.slice(bucket.state_begin, {own_count(bucket)})));
    context.launch(fill(gradient_, {}));
  }
  for (const Tensor& state : {m_, v_})
    if (state.defined()) context.launch(fill(state, {}));
}

std::vector<FlatGroup> make_flat_groups(Context& context, ParameterSet& parameters,
                                        const Grid& grid, const DistributedConfig& config,
                                        bool momentum) {
  std::map<std::pair<GroupKind, DType>, std::vector<Parameter*>> sorted;
  for (Parameter& p : parameters.all()) {
    const DType dtype = p.kind == ParameterKind::router ? context.real() : context.dtype;
    sorted[{p.reduction_group(), dtype}].push_back(&p);
  }
  const int64_t rank = context.device.properties().rank;
  std::vector<FlatGroup> groups;
  for (auto& [key, members] : sorted) {
    const Group group = grid.group(key.first, rank);
    groups.emplace_back(context, std::move(members), key.second, key.first, group.size(),
                        group.index_of(rank), sharding_of(config).shard != Shard::nothing,
                        config.comm_optimization.gradient_bucket_bytes, momentum);
  }
  return groups;
}

}  // namespace moetwin
