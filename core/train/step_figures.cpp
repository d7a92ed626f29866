#include "core/train/step_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/ops/elementwise.h"

namespace moetwin {

namespace {
/// {loss sum, valid tokens | squares, valid tokens | factor, norm}
constexpr int64_t kFixedFigures = 6;
}  // namespace

StepFigures::StepFigures(Context& context, std::vector<int64_t> moe_layers, int64_t experts,
                         bool counts, bool received)
    : moe_layers_(std::move(moe_layers)),
      experts_(experts),
      counts_(counts),
      tell_received_(received) {
  const int64_t of_layers = static_cast<int64_t>(moe_layers_.size()) * (4 + experts_);
  figures_ = context.memory.allocate({kFixedFigures + of_layers}, context.real(),
                                     MemoryClass::workspace, "figures of the step");
  sums_ = figures_.slice(0, {2});
  totals_ = figures_.slice(2, {2});
  factor_ = figures_.slice(4, {2});
  balance_ = figures_.slice(kFixedFigures, {of_layers});
}

void StepFigures::begin_step(Context& context) {
  context.launch(fill(figures_, {}));
  layers_.clear();
  received_.clear();
}

void StepFigures::add_counts(const ModelChunk& chunk, const ModelChunk::Saved& saved,
                             int64_t tokens) {
  for (size_t i = 0; i < saved.layers.size(); ++i) {
    const DispatchCounts& counts = saved.layers[i].moe.dispatch.counts;
    if (counts.routed.empty()) continue;
    const int64_t number = chunk.range().first + static_cast<int64_t>(i);
    if (tell_received_) received_[number] += counts.received_rows;
    if (!counts_) continue;
    auto layer = std::find_if(layers_.begin(), layers_.end(),
                              [&](const LayerStep& l) { return l.layer == number; });
    if (layer == layers_.end()) {
      layer = layers_.emplace(layer);
      layer->layer = number;
      layer->counts.assign(counts.routed.size(), 0);
      layer->kept.assign(counts.kept.size(), 0);
    }
    layer->tokens += tokens;
    for (size_t e = 0; e < counts.routed.size(); ++e) {
      layer->counts[e] += counts.routed[e];
      layer->kept[e] += counts.kept[e];
    }
  }
}

void StepFigures::read(Context& context, RankStep& out) {
  out.layers = std::move(layers_);
  layers_.clear();
  out.received = std::move(received_);
  received_.clear();
  if (!context.device.properties().numerics) {
    context.to_host(figures_, nullptr, context.streams.compute);
    return;
  }
  // fp64 runs read doubles, all others floats.
  const auto n = static_cast<size_t>(figures_.elements());
  std::vector<double> figures(n);
  if (context.real() == DType::f64) {
    context.to_host(figures_, figures.data(), context.streams.compute);
  } else {
    std::vector<float> narrow(n);
    context.to_host(figures_, narrow.data(), context.streams.compute);
    std::copy(narrow.begin(), narrow.end(), figures.begin());
  }
  out.ce_sum = figures[0];
  out.valid_tokens = std::llround(figures[1]);
  out.grad_norm = figures[5];
  if ((!out.skipped && !std::isfinite(out.grad_norm)) || !std::isfinite(out.ce_sum))
    throw Error(ErrorClass::non_finite,
                fmt::format("step {}: the gradient norm is {} and the loss sum of rank {} is {}; "
                            "lower the learning rate, or look at the last steps in steps.csv",
                            out.step, out.grad_norm, out.rank, out.ce_sum));
  for (LayerStep& layer : out.layers) {
    const auto place = std::lower_bound(moe_layers_.begin(), moe_layers_.end(), layer.layer);
    const double* f =
        figures.data() + kFixedFigures + (place - moe_layers_.begin()) * (4 + experts_);
    layer.aux = f[0];
    layer.z = f[1];
    layer.importance = f[2];
    layer.load_variance = f[3];
    // A scripted router has no scores.
    if (std::any_of(f + 4, f + 4 + experts_, [](double p) { return p > 0; }))
      layer.probability.assign(f + 4, f + 4 + experts_);
  }
}

}  // namespace moetwin
