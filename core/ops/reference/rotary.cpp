#include "core/ops/attention.h"
#include "core/ops/reference/block.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {

void rotary(const ReferenceCall& call) {
  const auto a = call.get<RotaryAttr>();
  const int64_t half = a.head_dim / 2, width = call[0].shape[1], tokens = call[0].shape[0];
  const int64_t turned = (a.query_heads + a.kv_heads) * a.head_dim;
  // One step of every frequency as a complex number; positions follow by multiplication in double,
  // which stays exact to 1e-12 over thousands of positions.
  const Scratch<double> step_cos(half), step_sin(half), at_cos(half), at_sin(half);
  for (int64_t i = 0; i < half; ++i) {
    const double angle = a.step(i, a.head_dim);
    step_cos[i] = std::cos(angle);
    step_sin[i] = a.inverse ? -std::sin(angle) : std::sin(angle);
  }
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> row(turned), c(half), s(half);
    for (int64_t position = 0; position < a.sequence_length; ++position) {
      for (int64_t i = 0; i < half; ++i) {
        const double x = position ? at_cos[i] : 1.0, y = position ? at_sin[i] : 0.0;
        at_cos[i] = position ? x * step_cos[i] - y * step_sin[i] : 1.0;
        at_sin[i] = position ? x * step_sin[i] + y * step_cos[i] : 0.0;
        c[i] = static_cast<C>(a.magnitude * at_cos[i]);
        s[i] = static_cast<C>(a.magnitude * at_sin[i]);
      }
      for (int64_t t = position; t < tokens; t += a.sequence_length) {
        read<C>(call[0], t * width, turned, row.get());
        for (C* x = row.get(); x < row.get() + turned; x += a.head_dim)
          for (int64_t i = 0; i < half; ++i) {
            const C u = x[i], v = x[i + half];
            x[i] = u * c[i] - v * s[i];
            x[i + half] = u * s[i] + v * c[i];
          }
        write<C>(call[0], t * width, turned, row.get());
      }
    }
  });
}

}  // namespace moetwin::reference
