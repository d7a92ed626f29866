#include "tests/support/train_run.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <stdexcept>

#include "backends/sim/cluster.h"
#include "core/base/error.h"
#include "core/moe/routing_trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/isa.h"
#include "core/record/recorder.h"
#include "core/train/data.h"
#include "core/train/train.h"
#include "tests/support/in_child.h"

namespace moetwin::test {

namespace {

// A byte stream for the way out of the child.
class Writer {
 public:
  template <class T>
  void put(const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(const std::string& text) {
    put(text.size());
    bytes += text;
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(values.size());
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : at_(bytes.data()) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text() {
    const auto n = get<size_t>();
    std::string s(at_, n);
    at_ += n;
    return s;
  }
  template <class T>
  std::vector<T> list() {
    std::vector<T> values(get<size_t>());
    if (!values.empty()) std::memcpy(values.data(), at_, values.size() * sizeof(T));
    at_ += values.size() * sizeof(T);
    return values;
  }

 private:
  const char* at_;
};

/// The whole parameter, not-a-number where nothing has been put yet.
std::vector<double>& whole(GlobalTensors& tensors, const Parameter& p) {
  auto& all = tensors[p.name];
  all.resize(static_cast<size_t>(p.global[0] * p.global[1] * p.global[2]),
             std::numeric_limits<double>::quiet_NaN());
  return all;
}

/// Puts this rank's owned elements where they belong. Ranks may be threads; the lock is not held
/// while a rank waits for its device, where another modelled rank may go on in the same thread.
void scatter(Trainer& trainer, GlobalTensors& tensors, std::mutex& mutex, bool gradients) {
  for (FlatGroup& group : trainer.groups()) {
    if (!group.counts_in_norm()) continue;
    if (!gradients && group.shards_everything()) {
      group.for_each_piece(trainer.context(), [&](const StatePiece& piece) {
        const Parameter& p = *piece.parameter;
        const std::vector<double> own = to_doubles(trainer, piece.weight);
        const std::lock_guard lock(mutex);
        auto& all = whole(tensors, p);
        for (int64_t i = 0; i < piece.count; ++i)
          all[static_cast<size_t>(p.global_index(piece.first + i))] = own[static_cast<size_t>(i)];
      });
      continue;
    }
    for (const FlatBucket& bucket : group.buckets()) {
      const int64_t begin = group.own_begin(bucket), end = begin + group.own_count(bucket);
      const std::vector<double> own =
          to_doubles(trainer, gradients ? group.gradient(begin, end - begin)
                                        : group.value(begin, end - begin));
      const std::lock_guard lock(mutex);
      for (const FlatPlace& place : group.places()) {
        const Parameter& p = *place.parameter;
        auto& all = whole(tensors, p);
        for (int64_t i = std::max(begin, place.begin); i < std::min(end, place.begin + p.placed());
             ++i)
          all[static_cast<size_t>(p.global_index(i - place.begin))] =
              own[static_cast<size_t>(i - begin)];
      }
    }
  }
}

std::map<std::string, uint64_t> checksum(Trainer& trainer) {
  std::map<std::string, uint64_t> sums;
  const auto add = [&](const Parameter& p, const std::string& part, const Tensor& tensor) {
    uint64_t hash = 1469598103934665603ull;
    for (const double v : to_doubles(trainer, tensor)) {
      uint64_t bits;
      std::memcpy(&bits, &v, sizeof bits);
      hash = (hash ^ bits) * 1099511628211ull;
    }
    // Parts of the same place in the global tensor are replicas.
    sums[fmt::format("{}@{},{},{},{}{}", p.name, p.offset[0], p.offset[1], p.offset[2],
                     p.columns.empty() ? 0 : p.columns[0].global, part)] = hash;
  };
  for (const Parameter& p : trainer.parameters().all())
    if (p.value.defined()) add(p, "", p.value);
  // Sharded parameters are nowhere whole; shares have copies with hybrid sharding.
  for (FlatGroup& group : trainer.groups())
    if (group.shards_everything())
      group.for_each_piece(trainer.context(), [&](const StatePiece& piece) {
        add(*piece.parameter, "+" + std::to_string(piece.first) + ":" + std::to_string(piece.count),
            piece.weight);
      });
  return sums;
}

void append(std::vector<double>& to, const std::vector<double>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

// The record, with somebody looking at what goes in.
class SeenSink : public RunSink {
 public:
  SeenSink(RunSink& sink, std::function<void(const RankStep&)> look)
      : sink_(sink), look_(std::move(look)) {}
  bool wants_detail(int64_t step) const override { return sink_.wants_detail(step); }
  void add(RankStep step) override {
    if (look_) look_(step);
    sink_.add(std::move(step));
  }
  void add_validation(int64_t rank, int64_t step, double ce_sum, int64_t tokens) override {
    sink_.add_validation(rank, step, ce_sum, tokens);
  }

 private:
  RunSink& sink_;
  std::function<void(const RankStep&)> look_;
};

std::string run(const Scenario& original, const TrainRunOptions& options) {
  Scenario scenario = original;
  scenario.memory.poison = options.poison;
  scenario.output.check_access = options.check_access;
  if (!options.probe) scenario.routing.probe.every_steps = 0;
  const Grid grid(scenario.distributed_config, scenario.model_config.moe_layer_config.num_experts,
                  scenario.model_config.expert_width());
  TrainResult result;
  RunInfo info;
  info.on_step = [&](const StepRow& row) {
    result.losses.push_back(row.loss);
    result.gradient_norms.push_back(row.grad_norm);
    result.step_seconds.push_back(row.seconds());
    std::vector<int64_t> counts;
    for (const LayerRow& layer : row.layers)
      counts.insert(counts.end(), layer.counts.begin(), layer.counts.end());
    result.counts.push_back(std::move(counts));
    if (options.look_at_row) append(result.rows, options.look_at_row(row));
  };
  Recorder recorder(scenario, grid, info);
  const auto data =
      options.data
          ? options.data()
          : synthetic_data(static_cast<uint64_t>(scenario.training_config.seed),
                           scenario.model_config.sequence_length, scenario.model_config.vocab_size);
  TrainerServices services;
  services.data = data.get();
  SeenSink seen(recorder, options.look_at_rank);
  services.recorder = &seen;
  services.trace = load_trace(scenario);
  result.checksums.resize(static_cast<size_t>(grid.world()));
  result.seen.resize(static_cast<size_t>(grid.world()));
  const auto look = [&](const TrainRunOptions::Look& at, Trainer& trainer, int64_t step) {
    if (at) append(result.seen[static_cast<size_t>(trainer.rank())], at(trainer, step));
  };
  std::mutex tensors_mutex;
  const bool tensors = options.tensors && scenario.training_config.numerics == "full";
  services.hooks.after_gradients = [&](Trainer& trainer, int64_t step) {
    look(options.look_at_gradients, trainer, step);
    if (tensors && step == 1) scatter(trainer, result.gradients, tensors_mutex, true);
  };
  services.hooks.after_step = [&](Trainer& trainer, int64_t step) {
    look(options.look_after_step, trainer, step);
    if (!tensors || step != scenario.training_config.steps) return;
    scatter(trainer, result.parameters, tensors_mutex, false);
    result.checksums[static_cast<size_t>(trainer.rank())] = checksum(trainer);
  };
  if (options.prepare) options.prepare(services);
  const auto modelled = [&] {
    const SimOptions sim = sim_options(options.threads);
    ClusterProfile profile =
        read_cluster_profile(scenario.cluster.profile, sim.profile_directories);
    if (options.change_profile) options.change_profile(profile);
    return make_sim_cluster(scenario, std::move(profile), sim);
  };
  const auto cluster = options.cluster ? options.cluster(scenario) : modelled();
  cluster->run([&](Backend& device) { train_rank(device, scenario, grid, services); });

  Writer out;
  for (const GlobalTensors* tensors : {&result.gradients, &result.parameters}) {
    out.put(tensors->size());
    for (const auto& [name, values] : *tensors) {
      out.put(name);
      out.put(values);
    }
  }
  out.put(result.losses);
  out.put(result.gradient_norms);
  out.put(result.step_seconds);
  out.put(result.counts.size());
  for (const auto& c : result.counts) out.put(c);
  out.put(result.checksums.size());
  for (const auto& of_rank : result.checksums) {
    out.put(of_rank.size());
    for (const auto& [name, hash] : of_rank) {
      out.put(name);
      out.put(hash);
    }
  }
  out.put(result.seen.size());
  for (const auto& of_rank : result.seen) out.put(of_rank);
  out.put(result.rows);
  out.put(recorder.validation_loss(scenario.training_config.steps));
  out.put(options.say ? options.say() : std::string());
  return out.bytes;
}

}  // namespace

std::vector<double> to_doubles(Trainer& trainer, const Tensor& tensor) {
  Context& context = trainer.context();
  const auto n = static_cast<size_t>(tensor.elements());
  std::vector<double> values(n);
  if (tensor.dtype == DType::f64) {
    context.to_host(tensor, values.data(), context.streams.compute);
  } else if (tensor.dtype == DType::f32) {
    std::vector<float> narrow(n);
    context.to_host(tensor, narrow.data(), context.streams.compute);
    std::copy(narrow.begin(), narrow.end(), values.begin());
  } else {
    const Tensor wide =
        context.memory.allocate(tensor.shape, DType::f32, MemoryClass::workspace, "widened");
    context.launch(cast(tensor, wide));
    return to_doubles(trainer, wide);
  }
  return values;
}

SimOptions sim_options(int threads) {
  SimOptions sim;
  sim.threads = threads;
  sim.profile_directories = {MOETWIN_SOURCE_SCENARIOS "/clusters"};
  sim.references = [isa = best_isa()](const Op& op) { return reference_of(op, isa); };
  return sim;
}

TrainResult train_in_child(const Scenario& scenario, const TrainRunOptions& options) {
  ChildLimits limits;
  limits.timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_seconds * 1000));
  limits.result_bytes = size_t{64} << 20;
  const std::string bytes = in_child([&] { return run(scenario, options); }, limits);
  Reader in(bytes);
  TrainResult result;
  for (GlobalTensors* tensors : {&result.gradients, &result.parameters}) {
    for (auto n = in.get<size_t>(); n > 0; --n) {
      const std::string name = in.text();
      (*tensors)[name] = in.list<double>();
    }
  }
  result.losses = in.list<double>();
  result.gradient_norms = in.list<double>();
  result.step_seconds = in.list<double>();
  result.counts.resize(in.get<size_t>());
  for (auto& c : result.counts) c = in.list<int64_t>();
  result.checksums.resize(in.get<size_t>());
  for (auto& of_rank : result.checksums) {
    for (auto n = in.get<size_t>(); n > 0; --n) {
      const std::string name = in.text();
      of_rank[name] = in.get<uint64_t>();
    }
  }
  result.seen.resize(in.get<size_t>());
  for (auto& of_rank : result.seen) of_rank = in.list<double>();
  result.rows = in.list<double>();
  result.validation_loss = in.get<double>();
  result.text = in.text();
  return result;
}

Distance distance(const GlobalTensors& a, const GlobalTensors& b, double floor) {
  if (a.size() != b.size())
    throw std::runtime_error("the two sets of tensors have different sizes");
  double all = 0;
  for (const auto& [name, values] : b)
    for (const double v : values) all += v * v;
  all = std::sqrt(all);
  Distance worst;
  for (const auto& [name, expected] : b) {
    const auto it = a.find(name);
    if (it == a.end() || it->second.size() != expected.size())
      throw std::runtime_error("tensor " + name + " is missing or has another size");
    double difference = 0, norm = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double d = it->second[i] - expected[i];
      difference += d * d;
      norm += expected[i] * expected[i];
    }
    const double relative = std::sqrt(difference) / std::max(std::sqrt(norm), floor * all);
    // NaN marks an element that no rank owns: worse than any number.
    if (std::isnan(relative)) return {std::numeric_limits<double>::infinity(), name};
    if (relative > worst.value) worst = {relative, name};
  }
  return worst;
}

}  // namespace moetwin::test
