#include "core/ops/loss.h"

#include <string>

#include "core/ops/reference/block.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {

void cross_entropy(const ReferenceCall& call) {
  const int64_t tokens = call[0].shape[0], v = call[0].shape[1];
  const double gradient = call.get<CrossEntropyAttr>().gradient_scale;
  const int32_t* targets = call[1].as<const int32_t>();
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> row(v), p(v);
    double loss = 0;
    int64_t valid = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      const int32_t target = targets[t];
      if (target < -1 || target >= v)
        throw Error(ErrorClass::internal, "op cross_entropy: token " + std::to_string(t) +
                                              " has target " + std::to_string(target) +
                                              ", legal: -1 to " + std::to_string(v - 1));
      if (target < 0) {
        if (gradient != 0) {
          std::fill_n(p.get(), v, C(0));
          write<C>(call[0], t * v, v, p.get());
        }
        continue;
      }
      const C* x = peek<C>(call[0], t * v, v, row.get());
      const C top = max_of<C>(x, v), label = x[target];
      const C sum = exp_shifted<C>(x, p.get(), v, C(1), top);
      loss += static_cast<double>(top - label + std::log(sum));
      ++valid;
      if (gradient == 0) continue;
      const C factor = static_cast<C>(gradient) / sum;
      for (int64_t i = 0; i < v; ++i) p[i] *= factor;
      p[target] -= static_cast<C>(gradient);
      write<C>(call[0], t * v, v, p.get());
    }
    call[2].as<C>()[0] += static_cast<C>(loss);
    call[2].as<C>()[1] += static_cast<C>(valid);
  });
}

}  // namespace moetwin::reference
