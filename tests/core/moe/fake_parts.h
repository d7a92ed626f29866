#pragma once
// Parts of an MoE layer that do something simple and known, to be swapped in for one of the real
// ones.

#include <vector>

#include "core/moe/layer.h"
#include "tests/support/rank_case.h"

namespace moetwin::test {

/// Routes as told: ids and weights of every token, row-major [T,k]. Keeps d_weights of the
/// backward.
class ToldRouter : public Router {
 public:
  ToldRouter(RankCase& at, std::vector<double> ids, std::vector<double> weights);
  Routing forward(Context& context, const MicroBatch& batch, const Tensor& x,
                  const Tensor& counts) override;
  void backward(Context& context, const MicroBatch& batch, const Routing& routing,
                const Tensor& d_weights, const Tensor& dx) override;
  const std::vector<double>& d_weights() const { return d_weights_; }

 private:
  RankCase& at_;
  std::vector<double> ids_, weights_, d_weights_;
};

/// Multiplies every row by the number of its expert's place in `factors` (global ids); all ones is
/// the identity. Hidden rows and expert-TP ranks of one expert give equal parts of the
/// sum. No parameters.
class ScalingExperts : public Experts {
 public:
  ScalingExperts(RankCase& at, std::vector<double> factors);
  Tensor forward(Context& context, const Tensor& x, const HostSizes& rows,
                 ExpertsSaved& saved) override;
  Tensor backward(Context& context, const ExpertsSaved& saved, const Tensor& dy,
                  const HostSizes& rows) override;

 private:
  Tensor scaled(Context& context, const Tensor& x, const std::vector<int64_t>& rows) const;
  int64_t first_expert_, parts_;
  std::vector<double> factors_;
};

/// One rank, no exchange: sorts and sums on the host, token by token.
class HostDispatcher : public Dispatcher {
 public:
  explicit HostDispatcher(RankCase& at);
  Tensor count_buffer(Context& context) override;
  Tensor router_counts(const Tensor& count_buffer) const override;
  Tensor forward(Context& context, const MicroBatch& batch, const Routing& routing,
                 const Tensor& count_buffer, const Tensor& x, Experts& experts,
                 const std::function<void()>& beside, DispatchSaved& saved) override;
  Tensor backward(Context& context, const Routing& routing, const Tensor& d_out, Experts& experts,
                  const std::function<void()>& beside, const Tensor& d_weights,
                  DispatchSaved& saved) override;

 private:
  RankCase& at_;
  int64_t experts_, top_k_;
  HostSizes rows_;
  std::vector<size_t> row_of_;  ///< of assignment t k + j
  std::vector<double> weights_, out_rows_;
};

}  // namespace moetwin::test
