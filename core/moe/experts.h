#pragma once
// The experts of one rank: rows grouped by local expert in, rows out.

#include <memory>
#include <string>

#include "core/moe/rebalancing/guests.h"
#include "core/nn/context.h"
#include "core/nn/parameter.h"
#include "core/ops/gemm.h"
#include "core/scenario/scenario.h"
#include "core/topology/grid.h"

namespace moetwin {

struct ExpertsSaved {
  Tensor x, pre;
  Tensor hidden;  ///< made again by the backward where it was dropped (recompute)
  Tensor kept;    ///< by other frameworks' kernels
  /// Experts of other ranks, and rows of each behind those of this rank's experts; set before the
  /// forward.
  std::shared_ptr<const Guests> guests;
  HostSizes guest_rows;
};

class Experts {
 public:
  virtual ~Experts() = default;
  /// x [N,H]: rows of local expert 0, then 1, ...; `rows` of each. Returns [N,H]: with hidden
  /// sharding a partial sum.
  virtual Tensor forward(Context& context, const Tensor& x, const HostSizes& rows,
                         ExpertsSaved& saved) = 0;
  /// dy [N,H] -> dx [N,H]; adds to the experts' gradients.
  virtual Tensor backward(Context& context, const ExpertsSaved& saved, const Tensor& dy,
                          const HostSizes& rows) = 0;
  /// What an expert consists of, [local experts, ...] each; empty where it cannot be a guest.
  virtual std::vector<Parameter*> parameters() { return {}; }
};

/// Two-layer MLPs as grouped GEMM pairs. Expert column and hidden row of this rank are those of
/// `grid` (semantics 1); expert-TP splits a row's width further.
class GroupedExperts : public Experts {
 public:
  GroupedExperts(ParameterSet& parameters, const ModelConfig& model, const Grid& grid,
                 const Coordinates& at, const std::string& name, double output_init_std,
                 int64_t block);
  Tensor forward(Context& context, const Tensor& x, const HostSizes& rows,
                 ExpertsSaved& saved) override;
  Tensor backward(Context& context, const ExpertsSaved& saved, const Tensor& dy,
                  const HostSizes& rows) override;
  std::vector<Parameter*> parameters() override;

 private:
  /// Neighbouring rows and the experts that work on them.
  struct Part {
    int64_t first = 0, count = 0;
    HostSizes rows;
    Tensor w1, b1, w2, b2, dw1, db1, dw2, db2;
  };
  /// This rank's experts, and its guests where any has rows.
  std::vector<Part> parts(const HostSizes& rows, const ExpertsSaved& saved) const;
  std::string activation_;
  int64_t hidden_, width_, up_width_, block_;
  Parameter *w1_ = nullptr, *b1_ = nullptr, *w2_ = nullptr, *b2_ = nullptr;
};

}  // namespace moetwin
