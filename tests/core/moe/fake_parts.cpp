#include "tests/core/moe/fake_parts.h"

#include "core/ops/elementwise.h"

namespace moetwin::test {

ToldRouter::ToldRouter(RankCase& at, std::vector<double> ids, std::vector<double> weights)
    : at_(at), ids_(std::move(ids)), weights_(std::move(weights)) {}

Routing ToldRouter::forward(Context& context, const MicroBatch& batch, const Tensor&,
                            const Tensor& counts) {
  const int64_t k = at_.scenario.model_config.moe_layer_config.top_k;
  Routing r;
  r.counts = counts;
  r.ids = at_.upload({batch.tokens(), k}, DType::i32, ids_);
  r.weights = at_.upload({batch.tokens(), k}, context.real(), weights_);
  std::vector<double> n(static_cast<size_t>(counts.elements()), 0);
  for (const double id : ids_)
    if (id >= 0) ++n[static_cast<size_t>(id)];
  at_.write(counts, n);
  return r;
}

void ToldRouter::backward(Context&, const MicroBatch&, const Routing&, const Tensor& d_weights,
                          const Tensor&) {
  d_weights_ = at_.download(d_weights);
}

ScalingExperts::ScalingExperts(RankCase& at, std::vector<double> factors)
    : first_expert_(at.grid.first_expert(at.at.ep)),
      parts_(at.grid.hidden_sharding() * at.grid.etp()),
      factors_(std::move(factors)) {}

Tensor ScalingExperts::scaled(Context& context, const Tensor& x,
                              const std::vector<int64_t>& rows) const {
  Tensor y = context.activation(x.shape, "scaled rows");
  int64_t at = 0;
  for (size_t e = 0; e < rows.size(); at += rows[e++]) {
    ScaleAttr attr;
    attr.alpha = factors_[static_cast<size_t>(first_expert_) + e] / static_cast<double>(parts_);
    if (rows[e] > 0) context.launch(scale(x.rows(at, rows[e]), y.rows(at, rows[e]), attr));
  }
  return y;
}

Tensor ScalingExperts::forward(Context& context, const Tensor& x, const HostSizes& rows,
                               ExpertsSaved&) {
  return scaled(context, x, *rows);
}
Tensor ScalingExperts::backward(Context& context, const ExpertsSaved&, const Tensor& dy,
                                const HostSizes& rows) {
  return scaled(context, dy, *rows);
}

HostDispatcher::HostDispatcher(RankCase& at)
    : at_(at),
      experts_(at.scenario.model_config.moe_layer_config.num_experts),
      top_k_(at.scenario.model_config.moe_layer_config.top_k) {}

Tensor HostDispatcher::count_buffer(Context& context) {
  return context.memory.allocate({experts_ + 1}, DType::i64, MemoryClass::control, "counts");
}
Tensor HostDispatcher::router_counts(const Tensor& buffer) const { return buffer; }

Tensor HostDispatcher::forward(Context& context, const MicroBatch&, const Routing& routing,
                               const Tensor&, const Tensor& x, Experts& experts,
                               const std::function<void()>& beside, DispatchSaved& saved) {
  const std::vector<double> ids = at_.download(routing.ids), in = at_.download(x);
  weights_ = at_.download(routing.weights);
  const auto h = static_cast<size_t>(x.shape[1]), k = static_cast<size_t>(top_k_);
  std::vector<int64_t> rows(static_cast<size_t>(experts_), 0);
  std::vector<double> gathered;
  row_of_.assign(ids.size(), 0);
  for (size_t e = 0; e < rows.size(); ++e)
    for (size_t a = 0; a < ids.size(); ++a) {
      if (ids[a] != static_cast<double>(e)) continue;
      row_of_[a] = gathered.size() / h;
      const auto token = in.begin() + static_cast<std::ptrdiff_t>(a / k * h);
      gathered.insert(gathered.end(), token, token + static_cast<std::ptrdiff_t>(h));
      ++rows[e];
    }
  rows_ = std::make_shared<const std::vector<int64_t>>(rows);
  const Tensor sorted = at_.upload({static_cast<int64_t>(ids.size()), x.shape[1]}, gathered);
  beside();
  saved.chunks.resize(1);
  out_rows_ = at_.download(experts.forward(context, sorted, rows_, saved.chunks[0].saved));
  std::vector<double> out(in.size(), 0.0);
  for (size_t a = 0; a < ids.size(); ++a)
    for (size_t i = 0; i < h; ++i)
      out[a / k * h + i] += weights_[a] * out_rows_[row_of_[a] * h + i];
  return at_.upload(x.shape, out);
}

Tensor HostDispatcher::backward(Context& context, const Routing&, const Tensor& d_out,
                                Experts& experts, const std::function<void()>& beside,
                                const Tensor& d_weights, DispatchSaved& saved) {
  const std::vector<double> dy = at_.download(d_out);
  const auto h = static_cast<size_t>(d_out.shape[1]), k = static_cast<size_t>(top_k_);
  std::vector<double> d_rows(out_rows_.size()), dw(row_of_.size(), 0.0), dx(dy.size(), 0.0);
  for (size_t a = 0; a < row_of_.size(); ++a)
    for (size_t i = 0; i < h; ++i) {
      d_rows[row_of_[a] * h + i] = weights_[a] * dy[a / k * h + i];
      dw[a] += dy[a / k * h + i] * out_rows_[row_of_[a] * h + i];
    }
  at_.write(d_weights, dw);
  beside();
  const Tensor sorted = at_.upload({static_cast<int64_t>(row_of_.size()), d_out.shape[1]}, d_rows);
  const std::vector<double> d_in =
      at_.download(experts.backward(context, saved.chunks[0].saved, sorted, rows_));
  for (size_t a = 0; a < row_of_.size(); ++a)
    for (size_t i = 0; i < h; ++i) dx[a / k * h + i] += d_in[row_of_[a] * h + i];
  return at_.upload(d_out.shape, dx);
}

}  // namespace moetwin::test
