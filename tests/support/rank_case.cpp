#include "tests/support/rank_case.h"

#include <algorithm>
#include <stdexcept>

#include "backends/sim/cluster.h"
#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/device/checked.h"
#include "core/ops/elementwise.h"
#include "core/scenario/stages.h"
#include "tests/support/in_child.h"
#include "tests/support/train_run.h"

namespace moetwin::test {

namespace {
std::vector<int64_t> all_moe_layers(const ModelConfig& model) {
  return moe_layers(model, {{0, model.num_layers}});
}

Context make_context(Backend& device, Allocator& memory, const TrainingConfig& config) {
  Context c{device, memory, {}, parse_dtype(config.dtype), static_cast<uint64_t>(config.seed)};
  c.streams.compute = device.stream("compute");
  c.streams.dispatch = device.stream("dispatch");
  c.streams.reduction = device.stream("reduction");
  return c;
}

Tensor cleared_losses(Context& context, const ModelConfig& model) {
  const int64_t n = model.num_moe_layers() * (4 + model.moe_layer_config.num_experts);
  Tensor losses = context.memory.allocate({n}, context.real(), MemoryClass::workspace, "losses");
  context.launch(fill(losses, {}));
  return losses;
}

template <class T>
void convert_and_write(RankCase& at, const Tensor& tensor, const std::vector<double>& values) {
  const std::vector<T> typed(values.begin(), values.end());
  at.device.write(tensor, typed.data(), at.context.streams.compute);
}
template <class T>
std::vector<double> read_and_convert(RankCase& at, const Tensor& tensor) {
  std::vector<T> typed(static_cast<size_t>(tensor.elements()));
  at.context.to_host(tensor, typed.data(), at.context.streams.compute);
  return {typed.begin(), typed.end()};
}
}  // namespace

RankCase::RankCase(Backend& device, const Scenario& scenario, const Grid& grid)
    : device(device),
      scenario(scenario),
      grid(grid),
      rank(device.properties().rank),
      at(grid.coordinates(rank)),
      memory(device, scenario.memory.poison),
      context(make_context(device, memory, scenario.training_config)),
      communicators(make_communicators(device, grid, scenario)),
      tp(communicators.tp.get(), scenario.distributed_config.sequence_parallel),
      losses(cleared_losses(context, scenario.model_config)),
      balance(context, scenario.model_config, all_moe_layers(scenario.model_config), losses,
              communicators.balance.get()) {}

void RankCase::start() {
  groups = make_flat_groups(context, parameters, grid, scenario.distributed_config, false);
  for (FlatGroup& group : groups) {
    group.initialise(context);
    context.launch(fill(group.gradients(), {}));
  }
  balance.begin_step();
}

Parameter& RankCase::parameter(const std::string& name) {
  for (Parameter& p : parameters.all())
    if (p.name == name) return p;
  throw std::runtime_error("no parameter " + name);
}

Tensor RankCase::upload(const Shape& shape, DType dtype, const std::vector<double>& values) {
  Tensor tensor = memory.allocate(shape, dtype, MemoryClass::activations, "test input");
  write(tensor, values);
  return tensor;
}

void RankCase::write(const Tensor& tensor, const std::vector<double>& values) {
  require(tensor.elements() == static_cast<int64_t>(values.size()), "one value per element");
  switch (tensor.dtype) {
    case DType::f64:
      return convert_and_write<double>(*this, tensor, values);
    case DType::f32:
      return convert_and_write<float>(*this, tensor, values);
    case DType::i32:
      return convert_and_write<int32_t>(*this, tensor, values);
    case DType::i64:
      return convert_and_write<int64_t>(*this, tensor, values);
    default: {
      const Tensor wide = upload(tensor.shape, DType::f32, values);
      context.launch(cast(wide, tensor));
    }
  }
}

std::vector<double> RankCase::download(const Tensor& tensor) {
  switch (tensor.dtype) {
    case DType::f64:
      return read_and_convert<double>(*this, tensor);
    case DType::f32:
      return read_and_convert<float>(*this, tensor);
    case DType::i32:
      return read_and_convert<int32_t>(*this, tensor);
    case DType::i64:
      return read_and_convert<int64_t>(*this, tensor);
    default: {
      const Tensor wide =
          memory.allocate(tensor.shape, DType::f32, MemoryClass::workspace, "widened");
      context.launch(cast(tensor, wide));
      return download(wide);
    }
  }
}

RouterSetup RankCase::router_setup(int64_t moe_layer) {
  const int64_t layer = all_moe_layers(scenario.model_config)[static_cast<size_t>(moe_layer)];
  return {scenario.model_config,
          scenario.routing,
          "layers." + std::to_string(layer) + ".moe",
          layer,
          moe_layer,
          layer + 1,
          at.ddp,
          grid.ddp(),
          grid.expert_sharding(),
          true,
          balance,
          nullptr,
          tp};
}

std::unique_ptr<Dispatcher> RankCase::dispatcher(int64_t chunks) {
  DispatcherConfig config;
  config.moe = scenario.model_config.moe_layer_config;
  config.experts = config.moe.num_experts;
  config.top_k = config.moe.top_k;
  config.chunks = chunks;
  config.slices = tp.size();
  config.slice = tp.rank();
  return std::make_unique<AllToAllDispatcher>(config, grid, communicators.ep.get(),
                                              communicators.expert_tp.get());
}

MicroBatch RankCase::batch(int64_t first, int64_t tokens, int64_t all) {
  MicroBatch b;
  b.first_sequence = first;
  b.sequences = b.valid_tokens = tokens;
  b.sequence_length = 1;
  b.share = static_cast<double>(tokens) / static_cast<double>(all);
  b.gradient_scale = 1.0 / static_cast<double>(all);
  return b;
}

std::vector<std::vector<double>> RankCase::gradients() {
  Lists lists(2);
  for (const Parameter& p : parameters.all()) {
    const std::vector<double> values = download(p.gradient);
    for (int64_t i = 0; i < p.placed(); ++i)
      lists[0].push_back(static_cast<double>(p.init_stream) * (1 << 20) +
                         static_cast<double>(p.global_index(i)));
    lists[1].insert(lists[1].end(), values.begin(), values.begin() + p.placed());
  }
  return lists;
}

Scenario layer_scenario(int64_t dp, int64_t ep, int64_t experts, int64_t top_k) {
  Scenario s;
  s.model_config.hidden_size = 8;
  s.model_config.num_layers = 1;
  s.model_config.num_attention_heads = 2;
  s.model_config.init_std = 0.3;
  MoeLayerConfig& moe = s.model_config.moe_layer_config;
  moe.num_experts = experts;
  moe.top_k = top_k;
  moe.expert_hidden_size = 16;
  moe.aux_loss_factor = 0;
  s.distributed_config.world_size = dp * ep;
  s.distributed_config.data_parallel_size = dp;
  s.distributed_config.expert_parallel_size = ep;
  s.training_config.dtype = "fp64";
  s.cluster.profile = "toy-8gpu";
  s.memory.poison = true;
  return s;
}

std::vector<Lists> on_ranks(
    const Scenario& scenario, const std::function<Lists(RankCase&)>& program,
    const std::function<std::unique_ptr<Cluster>(const Scenario&)>& machine) {
  const auto world = static_cast<size_t>(scenario.distributed_config.world_size);
  const std::vector<double> flat = in_child([&] {
    const Grid grid(scenario.distributed_config, scenario.model_config.moe_layer_config.num_experts,
                    scenario.model_config.expert_width());
    std::vector<Lists> of_rank(world);
    const auto cluster = machine ? machine(scenario) : make_sim_cluster(scenario, sim_options());
    cluster->run([&](Backend& device) {
      CheckedBackend checked(device);
      RankCase at(checked, scenario, grid);
      of_rank[static_cast<size_t>(at.rank)] = program(at);
    });
    std::vector<double> joined;
    for (const Lists& lists : of_rank) {
      joined.push_back(static_cast<double>(lists.size()));
      for (const std::vector<double>& list : lists) {
        joined.push_back(static_cast<double>(list.size()));
        joined.insert(joined.end(), list.begin(), list.end());
      }
    }
    return joined;
  });
  std::vector<Lists> of_rank(world);
  auto at = flat.begin();
  for (Lists& lists : of_rank) {
    lists.resize(static_cast<size_t>(*at++));
    for (std::vector<double>& list : lists) {
      const auto n = static_cast<std::ptrdiff_t>(*at++);
      list.assign(at, at + n);
      at += n;
    }
  }
  return of_rank;
}

std::map<double, double> summed(const std::vector<Lists>& ranks, size_t first) {
  std::map<double, double> sums;
  for (const Lists& lists : ranks)
    for (size_t i = 0; i < lists[first].size(); ++i) sums[lists[first][i]] += lists[first + 1][i];
  return sums;
}

std::vector<double> draws(int64_t n, uint64_t seed) {
  const PhiloxKey key = philox_key(seed, Purpose::init, 0, 77);
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = philox_normal(key, i);
  return values;
}

}  // namespace moetwin::test
