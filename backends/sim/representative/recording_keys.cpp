#include "backends/sim/representative/recording_keys.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <variant>

namespace moetwin {

namespace {

bool starts_with_any(const std::string& path, std::initializer_list<const char*> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const char* p) { return path.rfind(p, 0) == 0; });
}

/// What no recording depends on, or depends on only through sizes that are put into its key.
bool never_matters(const std::string& path) {
  return starts_with_any(path, {"description",
                                "data.",
                                "checkpoint.",
                                "output.",
                                "profile.",
                                "memory.",
                                "nccl",
                                "routing.probe",
                                "routing.trace_file",
                                "cluster.profile",
                                "cluster.nodes",
                                "cluster.fidelity",
                                "cluster.price",
                                "cluster.currency",
                                "training_config.steps",
                                "training_config.seed",
                                "training_config.validation",
                                "training_config.warmup",
                                "training_config.learning_rate",
                                "training_config.schedule",
                                "training_config.router",
                                "training_config.expert",
                                "training_config.dense",
                                "training_config.embedding",
                                "training_config.global_batch_size",
                                "distributed_config.master",
                                "distributed_config.timeout",
                                "distributed_config.check"});
}
bool matters_to_layers(const std::string& path) {
  if (path == "distributed_config.tensor_parallel_size" ||
      path == "distributed_config.sequence_parallel" ||
      path == "distributed_config.expert_parallel_size" ||
      path == "distributed_config.expert_tensor_parallel_size" ||
      path == "distributed_config.parallel_folding" ||
      path == "distributed_config.context_parallel_size" ||
      path == "distributed_config.context_parallel_exchange")
    return true;
  return !starts_with_any(path, {"distributed_config.", "model_config.num_layers"}) ||
         path.rfind("distributed_config.comm_optimization.all_to_all", 0) == 0;
}
bool matters_to_stages(const std::string& path) {
  return !starts_with_any(
      path, {"training_config.micro_batch_size", "training_config.recompute", "routing.workload",
             "routing.source", "distributed_config.pipeline_schedule",
             "distributed_config.comm_optimization.all_to_all"});
}

bool matters_to_routing(const std::string& path) {
  return starts_with_any(path, {"routing.", "model_config.moe_layer_config."});
}

struct AppendBytes {
  Scenario& scenario;
  std::string& to;
  template <class T>
  void raw(const T& value) const {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) const {
    raw(value.size());
    to += value;
  }
  void operator()(const Member<int64_t>& m) const { raw(m(scenario)); }
  void operator()(const Member<double>& m) const { raw(m(scenario)); }
  void operator()(const Member<bool>& m) const { raw(m(scenario)); }
  void operator()(const Member<std::string>& m) const { text(m(scenario)); }
  void operator()(const Member<std::optional<double>>& m) const {
    raw(m(scenario).has_value());
    raw(m(scenario).value_or(0));
  }
  void operator()(const Member<std::vector<int64_t>>& m) const {
    raw(m(scenario).size());
    for (int64_t v : m(scenario)) raw(v);
  }
  void operator()(const Member<std::vector<std::string>>& m) const {
    raw(m(scenario).size());
    for (const std::string& v : m(scenario)) text(v);
  }
  void operator()(const Member<Texts>& m) const {
    for (const auto& [name, value] : m(scenario)) text(name), text(value);
  }
};

}  // namespace

RecordingKeys::RecordingKeys() {
  for (const Key& key : scenario_keys().keys) {
    if (never_matters(key.path)) continue;
    if (matters_to_layers(key.path)) layer_.push_back(key.field);
    if (matters_to_stages(key.path)) stage_.push_back(key.field);
    if (matters_to_routing(key.path)) routing_.push_back(key.field);
  }
}

namespace {
std::string bytes_of(const Scenario& scenario, const std::vector<Field>& fields) {
  std::string bytes;
  auto& readable = const_cast<Scenario&>(scenario);  // the table's members are for writing too
  for (const Field& field : fields) std::visit(AppendBytes{readable, bytes}, field);
  return bytes;
}
}  // namespace

std::string RecordingKeys::layer(const Scenario& scenario) const {
  return bytes_of(scenario, layer_);
}
std::string RecordingKeys::stage(const Scenario& scenario) const {
  return bytes_of(scenario, stage_);
}
std::string RecordingKeys::routing(const Scenario& scenario) const {
  return bytes_of(scenario, routing_);
}

}  // namespace moetwin
