#pragma once
// y = x W + b, forward and backward; W [in, out].

#include "core/nn/context.h"
#include "core/nn/parameter.h"
#include "core/ops/gemm.h"

namespace moetwin {

struct LinearConfig {
  std::string name;
  int64_t in = 0, out = 0;
  bool bias = true;
  double init_std = 0.02;
  int64_t block = 0;
};

class Linear {
 public:
  Linear() = default;
  Linear(ParameterSet& parameters, const LinearConfig& config);

  /// x [T,in] -> [T,out]. With an epilogue, `pre` gets the value before it when defined.
  Tensor forward(Context& context, const Tensor& x, Epilogue epilogue = Epilogue::none,
                 Tensor pre = {}) const;
  /// Adds the gradients of W and b; returns dx [T,in].
  Tensor backward(Context& context, const Tensor& x, const Tensor& dy) const;

 private:
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;
  int64_t in_ = 0, out_ = 0;
};

}  // namespace moetwin
