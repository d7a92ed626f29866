#include "core/ops/activation.h"

#include "core/ops/reference/block.h"
#include "core/ops/reference/gelu.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {
namespace ei = Eigen::internal;
namespace {

/// Rows in use: all, or as many as the host says.
int64_t rows_of(const ReferenceCall& call) {
  return call.sizes ? (*call.sizes)[0] : call[0].shape[0];
}
int64_t used_elements(const ReferenceCall& call) {
  const int64_t rows = call[0].shape[0];
  return rows ? elements(call[0]) / rows * rows_of(call) : 0;
}
template <class C>
Packet<C> sigmoid(const Packet<C>& x) {
  const Packet<C> one = set1<C>(1);
  return ei::pdiv(one, ei::padd(one, exp_of<C>(ei::pnegate(x))));
}

}  // namespace

void gelu(const ReferenceCall& call) {
  const bool tanh_form = call.get<GeluAttr>().tanh_form;
  with_compute(call[0].dtype, [&]<class C>(C) {
    map<C>({call[0]}, call[1], 0, used_elements(call),
           [tanh_form](const Packet<C>* x) { return gelu_of<C>(x[0], tanh_form); });
  });
}

void gelu_backward(const ReferenceCall& call) {
  const bool tanh_form = call.get<GeluAttr>().tanh_form;
  with_compute(call[0].dtype, [&]<class C>(C) {
    map<C>({call[0], call[1]}, call[2], 0, used_elements(call), [tanh_form](const Packet<C>* x) {
      return ei::pmul(x[1], gelu_slope<C>(x[0], tanh_form));
    });
  });
}

void swiglu(const ReferenceCall& call) {
  const int64_t f = call[1].shape[1], rows = rows_of(call);
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> x(2 * f), y(f);
    for (int64_t r = 0; r < rows; ++r) {
      const C* in = peek<C>(call[0], r * 2 * f, 2 * f, x.get());
      for_packets<C>(f, [&](int64_t i, int64_t used) {
        const Packet<C> gate = load_n<C>(in + i, used), up = load_n<C>(in + f + i, used);
        store_n<C>(y.get() + i, ei::pmul(ei::pmul(gate, sigmoid<C>(gate)), up), used);
      });
      write<C>(call[1], r * f, f, y.get());
    }
  });
}

void swiglu_backward(const ReferenceCall& call) {
  const int64_t f = call[1].shape[1], rows = rows_of(call);
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> x(2 * f), y(f), d(2 * f);
    const Packet<C> one = set1<C>(1);
    for (int64_t r = 0; r < rows; ++r) {
      const C* in = peek<C>(call[0], r * 2 * f, 2 * f, x.get());
      const C* dy = peek<C>(call[1], r * f, f, y.get());
      for_packets<C>(f, [&](int64_t i, int64_t used) {
        const Packet<C> gate = load_n<C>(in + i, used), up = load_n<C>(in + f + i, used);
        const Packet<C> g = load_n<C>(dy + i, used), s = sigmoid<C>(gate);
        // silu' = s (1 + gate (1 - s))
        const Packet<C> slope = ei::pmul(s, ei::pmadd(gate, ei::psub(one, s), one));
        store_n<C>(d.get() + i, ei::pmul(ei::pmul(g, up), slope), used);
        store_n<C>(d.get() + f + i, ei::pmul(g, ei::pmul(gate, s)), used);
      });
      write<C>(call[2], r * 2 * f, 2 * f, d.get());
    }
  });
}

}  // namespace moetwin::reference
