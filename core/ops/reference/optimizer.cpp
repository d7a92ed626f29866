#include "core/ops/optimizer.h"

#include "core/ops/reference/block.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {

void adamw(const ReferenceCall& call) {
  const auto a = call.get<AdamWAttr>();
  const int64_t n = elements(call[0]);
  with_compute(call[0].dtype, [&]<class C>(C) {
    alignas(64) C p[kBlock], g[kBlock], m[kBlock], v[kBlock];
    const C scale = call[4].as<C>()[0];
    const C beta1 = static_cast<C>(a.beta1), beta2 = static_cast<C>(a.beta2);
    const C rest1 = static_cast<C>(1 - a.beta1), rest2 = static_cast<C>(1 - a.beta2);
    const double steps = static_cast<double>(a.step);
    const C rate = static_cast<C>(a.learning_rate / (1 - std::pow(a.beta1, steps)));
    const C correction = static_cast<C>(1 / std::sqrt(1 - std::pow(a.beta2, steps)));
    const C decay = static_cast<C>(1 - a.learning_rate * a.weight_decay);
    const C epsilon = static_cast<C>(a.epsilon);
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t count = std::min(kBlock, n - i);
      read<C>(call[0], i, count, p);
      read<C>(call[1], i, count, g);
      read<C>(call[2], i, count, m);
      read<C>(call[3], i, count, v);
      for (int64_t j = 0; j < count; ++j) {
        const C gradient = g[j] * scale;
        m[j] = beta1 * m[j] + rest1 * gradient;
        v[j] = beta2 * v[j] + rest2 * (gradient * gradient);
        p[j] = p[j] * decay - rate * m[j] / (std::sqrt(v[j]) * correction + epsilon);
      }
      write<C>(call[0], i, count, p);
      write<C>(call[2], i, count, m);
      write<C>(call[3], i, count, v);
    }
  });
}

void sgd(const ReferenceCall& call) {
  const auto a = call.get<SgdAttr>();
  const int64_t n = elements(call[0]);
  with_compute(call[0].dtype, [&]<class C>(C) {
    alignas(64) C p[kBlock], g[kBlock];
    const C scale = call[2].as<C>()[0], rate = static_cast<C>(a.learning_rate);
    const C decay = static_cast<C>(1 - a.learning_rate * a.weight_decay);
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t count = std::min(kBlock, n - i);
      read<C>(call[0], i, count, p);
      read<C>(call[1], i, count, g);
      for (int64_t j = 0; j < count; ++j) p[j] = p[j] * decay - rate * (g[j] * scale);
      write<C>(call[0], i, count, p);
    }
  });
}

void sum_squares(const ReferenceCall& call) {
  const int64_t n = elements(call[0]);
  with_compute(call[0].dtype, [&]<class C>(C) {
    alignas(64) C block[kBlock];
    double sum = 0;
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      const C* x = peek<C>(call[0], i, m, block);
      sum += static_cast<double>(dot<C>(x, x, m));
    }
    call[1].as<C>()[0] += static_cast<C>(sum);
  });
}

void clip_factor(const ReferenceCall& call) {
  const auto a = call.get<ClipAttr>();
  with_compute(call[0].dtype, [&]<class C>(C) {
    const C squares = call[0].as<C>()[0], valid = call[0].as<C>()[1];
    const C unscale = valid > 0 ? static_cast<C>(a.nominal_tokens) / valid : C(0);
    const C norm = std::sqrt(squares) * unscale;
    const C clip = static_cast<C>(a.max_norm) / (norm + C(1e-6));
    call[1].as<C>()[0] = a.max_norm > 0 && clip < 1 ? unscale * clip : unscale;
    call[1].as<C>()[1] = norm;
  });
}

}  // namespace moetwin::reference
