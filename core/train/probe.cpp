#include "core/train/probe.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moetwin {

namespace {

constexpr int64_t kProbeTokens = 512;

/// fp64 runs keep doubles, all others floats.
std::vector<double> real_values(Context& context, const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.elements()));
  if (tensor.dtype == DType::f64) {
    context.to_host(tensor, values.data(), context.streams.compute);
  } else {
    std::vector<float> narrow(values.size());
    context.to_host(tensor, narrow.data(), context.streams.compute);
    std::copy(narrow.begin(), narrow.end(), values.begin());
  }
  return values;
}

double entropy(const double* scores, int64_t n) {
  double sum = 0, nats = 0;
  for (int64_t e = 0; e < n; ++e) sum += scores[e];
  for (int64_t e = 0; e < n; ++e)
    if (scores[e] > 0) nats -= scores[e] / sum * std::log(scores[e] / sum);
  return nats;
}

double variance(const double* values, int64_t n) {
  const double mean = std::accumulate(values, values + n, 0.0) / static_cast<double>(n);
  double squares = 0;
  for (int64_t e = 0; e < n; ++e) squares += (values[e] - mean) * (values[e] - mean);
  return squares / static_cast<double>(n);
}

}  // namespace

int64_t probe_sequences(const Scenario& s) {
  const bool possible = s.training_config.numerics == "full" && s.routing.source == "learned" &&
                        s.model_config.num_moe_layers() > 0 && s.routing.probe.every_steps > 0;
  if (!possible) return 0;
  if (s.routing.probe.sequences > 0) return s.routing.probe.sequences;
  const int64_t length = s.model_config.sequence_length;
  return std::clamp<int64_t>((kProbeTokens + length - 1) / length, 1,
                             s.training_config.global_batch_size);
}

Probe::Probe(const Scenario& scenario)
    : scenario_(scenario), sequences_(probe_sequences(scenario)) {}

void Probe::read(Context& context, const MicroBatch& batch) {
  const int64_t length = batch.sequence_length;
  for (const RoutingWatch::Routed& routed : watch_.routed) {
    const int64_t tokens = routed.ids.shape[0], k = routed.ids.shape[1];
    const int64_t experts = routed.logits.shape[1];
    if (tokens == 0) continue;
    std::vector<int32_t> ids(static_cast<size_t>(tokens * k));
    context.to_host(routed.ids, ids.data(), context.streams.compute);
    const std::vector<double> scores = real_values(context, routed.scores),
                              logits = real_values(context, routed.logits);
    for (int64_t s = 0; s < batch.sequences; ++s) {
      ProbeSequence seen;
      seen.sequence = batch.first_sequence + s;
      seen.tokens = length;
      seen.first.resize(static_cast<size_t>(experts));
      std::vector<int32_t> chosen;
      for (int64_t t = s * length; t < (s + 1) * length; ++t) {
        chosen.push_back(ids[static_cast<size_t>(t * k)]);
        ++seen.first.at(static_cast<size_t>(chosen.back()));
        seen.entropy += entropy(scores.data() + t * experts, experts);
        seen.variance += variance(logits.data() + t * experts, experts);
      }
      std::vector<int32_t>& last = last_[{routed.layer, seen.sequence}];
      if (!last.empty()) {
        seen.changed = 0;
        for (size_t t = 0; t < chosen.size(); ++t) seen.changed += chosen[t] != last[t];
      }
      last = std::move(chosen);
      seen_[routed.layer].push_back(std::move(seen));
    }
  }
  watch_.routed.clear();
}

void Probe::hand_over(Context& context, const BalanceState& balance,
                      std::vector<LayerStep>& layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerStep& layer = layers[i];
    ProbePart part;
    part.sequences = std::move(seen_[layer.layer]);
    const std::vector<int64_t>& kept = layer.kept.empty() ? layer.counts : layer.kept;
    part.weighed = std::accumulate(kept.begin(), kept.end(), int64_t{0});
    // A dropped assignment has a derivative of exactly zero.
    for (const RoutingWatch::Weighed& weighed : watch_.weighed) {
      if (weighed.layer != layer.layer || weighed.gradient.elements() == 0) continue;
      for (double d : real_values(context, weighed.gradient)) part.harmed += d > 0;
    }
    const Tensor bias = balance.bias(static_cast<int64_t>(i));
    if (bias.defined()) part.bias = real_values(context, bias);
    layer.probe = std::move(part);
  }
  watch_.weighed.clear();
  seen_.clear();
}

}  // namespace moetwin
