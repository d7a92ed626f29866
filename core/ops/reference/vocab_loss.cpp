#include <cmath>
#include <limits>
#include <string>

#include "core/ops/loss.h"
#include "core/ops/reference/block.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {
namespace {

/// Column of a token's target in this part, or -1.
int64_t column_of(int32_t target, int64_t token, const VocabPartAttr& a) {
  if (target < -1 || target >= a.vocabulary)
    throw Error(ErrorClass::internal, "op vocab_cross_entropy: token " + std::to_string(token) +
                                          " has target " + std::to_string(target) +
                                          ", legal: -1 to " + std::to_string(a.vocabulary - 1));
  const int64_t column = target - a.first;
  return target >= 0 && column >= 0 && column < a.classes ? column : -1;
}

}  // namespace

void vocab_statistics(const ReferenceCall& call) {
  const auto a = call.get<VocabPartAttr>();
  const int64_t tokens = call[0].shape[0], v = call[0].shape[1];
  const int32_t* targets = call[1].as<const int32_t>();
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> row(v), p(v);
    C* out = call[2].as<C>();
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t column = column_of(targets[t], t, a);
      C top = -std::numeric_limits<C>::infinity(), sum = 0, label = 0;
      if (a.classes > 0) {
        const C* x = peek<C>(call[0], t * v, a.classes, row.get());
        top = max_of<C>(x, a.classes);
        sum = exp_shifted<C>(x, p.get(), a.classes, C(1), top);
        if (column >= 0) label = x[column];
      }
      out[t] = top;
      out[tokens + t] = sum;
      out[2 * tokens + t] = label;
    }
  });
}

void vocab_cross_entropy(const ReferenceCall& call) {
  const auto a = call.get<VocabCrossEntropyAttr>();
  const int64_t tokens = call[0].shape[0], v = call[0].shape[1];
  const int32_t* targets = call[1].as<const int32_t>();
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> row(v), p(v);
    const C* statistics = call[2].as<const C>();
    double loss = 0;
    int64_t valid = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t column = column_of(targets[t], t, a.part);
      const auto of = [&](int64_t part, int64_t what) {
        return statistics[(part * 3 + what) * tokens + t];
      };
      std::fill_n(p.get(), v, C(0));
      if (targets[t] >= 0) {
        C top = of(0, 0), sum = 0, label = 0;
        for (int64_t i = 1; i < a.parts; ++i) top = std::max(top, of(i, 0));
        for (int64_t i = 0; i < a.parts; ++i) {
          if (of(i, 1) > 0) sum += of(i, 1) * std::exp(of(i, 0) - top);
          label += of(i, 2);
        }
        loss += static_cast<double>(top - label + std::log(sum));
        ++valid;
        if (a.gradient_scale == 0) continue;
        if (a.part.classes > 0) {
          const C* x = peek<C>(call[0], t * v, a.part.classes, row.get());
          exp_shifted<C>(x, p.get(), a.part.classes, C(1), top);
        }
        const C factor = static_cast<C>(a.gradient_scale) / sum;
        for (int64_t i = 0; i < a.part.classes; ++i) p[i] *= factor;
        if (column >= 0) p[column] -= static_cast<C>(a.gradient_scale);
      }
      if (a.gradient_scale != 0) write<C>(call[0], t * v, v, p.get());
    }
    call[3].as<C>()[0] += static_cast<C>(loss);
    call[3].as<C>()[1] += static_cast<C>(valid);
  });
}

}  // namespace moetwin::reference
