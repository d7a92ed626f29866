#pragma once
// y = x W + b, forward and backward; W [in, out]. Under TP each rank has columns or rows of W.

#include "core/nn/context.h"
#include "core/nn/parameter.h"
#include "core/nn/tensor_parallel.h"
#include "core/ops/gemm.h"

namespace moetwin {

enum class LinearSplit : uint8_t {
  none,
  columns,  ///< each rank makes a part of the outputs
  rows,     ///< each rank reads a part of the inputs and leaves a partial sum; the lowest adds b
  copied,   ///< whole on every rank, for its heads: gradients, of x too, are partial sums
};

struct LinearConfig {
  std::string name;
  int64_t in = 0, out = 0;  ///< of all ranks
  bool bias = true;
  double init_std = 0.02;
  int64_t block = 0;
  LinearSplit split = LinearSplit::none;
  /// columns: widths of the parts of the output that are split each on its own (gate | up). Empty:
  /// one part.
  std::vector<int64_t> parts{};
};

class Linear {
 public:
  Linear() = default;
  Linear(ParameterSet& parameters, const LinearConfig& config, const TensorParallel& tp = {});

  /// x [T,in] -> [T,out], extents of this rank. With an epilogue, `pre` gets the value before it
  /// when defined.
  Tensor forward(Context& context, const Tensor& x, Epilogue epilogue = Epilogue::none,
                 Tensor pre = {}) const;
  /// Launches the product of x with as many columns of W as y [T,columns] has: for a recompute of a
  /// part, without numerics.
  void forward_columns(Context& context, const Tensor& x, const Tensor& y) const;
  /// Adds the gradients of W and b; returns dx [T,in].
  Tensor backward(Context& context, const Tensor& x, const Tensor& dy) const;

 private:
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;
  int64_t in_ = 0, out_ = 0;  ///< of this rank
  bool adds_bias_ = true;
};

}  // namespace moetwin
