#include "core/ops/norm.h"

#include "core/ops/reference/block.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {
namespace ei = Eigen::internal;
namespace {

/// Sum of (x - mean)^2.
template <class C>
C squares(const C* x, int64_t n, C mean) {
  const Packet<C> m = set1<C>(mean);
  return packet_sum<C>(n, [&](int64_t i, int64_t used) {
    const Packet<C> d = ei::psub(load_n<C>(x + i, used, mean), m);
    return ei::pmul(d, d);
  });
}
/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * gamma, in `g`; also adds to the
/// weights' gradients. Without centring (rms) mean(g) is left out.
template <class C>
void row_backward(int64_t n, const C* x, const C* dy, const C* gamma, C mean, C rstd, bool centred,
                  C* g, C* d_gamma, C* d_beta) {
  for (int64_t i = 0; i < n; ++i) {
    const C xhat = (x[i] - mean) * rstd;
    g[i] = dy[i] * gamma[i];
    d_gamma[i] += dy[i] * xhat;
  }
  if (d_beta)
    for (int64_t i = 0; i < n; ++i) d_beta[i] += dy[i];
  const C count = static_cast<C>(n), shift = centred ? sum_of<C>(g, n) / count : C(0);
  const Packet<C> m = set1<C>(mean);
  const C along = packet_sum<C>(n,
                                [&](int64_t i, int64_t used) {
                                  return ei::pmul(load_n<C>(g + i, used),
                                                  ei::psub(load_n<C>(x + i, used, mean), m));
                                }) *
                  rstd / count;
  for (int64_t i = 0; i < n; ++i) {
    const C xhat = (x[i] - mean) * rstd;
    g[i] = rstd * (g[i] - shift - xhat * along);
  }
}

}  // namespace

void norm(const ReferenceCall& call) {
  const auto attr = call.get<NormAttr>();
  const bool layer = attr.kind == NormKind::layer;
  const int64_t rows = call[0].shape[0], n = call[0].shape[1];
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> x(n), gamma(n), beta(n), y(n);
    read<C>(call[1], 0, n, gamma.get());
    if (call[2].data)
      read<C>(call[2], 0, n, beta.get());
    else
      std::fill_n(beta.get(), n, C(0));
    for (int64_t r = 0; r < rows; ++r) {
      const C* in = peek<C>(call[0], r * n, n, x.get());
      const C mean = layer ? sum_of<C>(in, n) / static_cast<C>(n) : C(0);
      const C variance = squares<C>(in, n, mean) / static_cast<C>(n);
      const C rstd = C(1) / std::sqrt(variance + static_cast<C>(attr.epsilon));
      for (int64_t i = 0; i < n; ++i) y[i] = (in[i] - mean) * rstd * gamma[i] + beta[i];
      write<C>(call[3], r * n, n, y.get());
      if (layer) call[4].as<C>()[r] = mean;
      call[5].as<C>()[r] = rstd;
    }
  });
}

void norm_backward(const ReferenceCall& call) {
  const bool layer = call.get<NormAttr>().kind == NormKind::layer;
  const int64_t rows = call[0].shape[0], n = call[0].shape[1];
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> x(n), dy(n), gamma(n), g(n), d_gamma(n), d_beta(n);
    read<C>(call[1], 0, n, gamma.get());
    std::fill_n(d_gamma.get(), n, C(0));
    std::fill_n(d_beta.get(), n, C(0));
    C* shift = call[7].data ? d_beta.get() : nullptr;
    for (int64_t r = 0; r < rows; ++r) {
      const C* in = peek<C>(call[0], r * n, n, x.get());
      const C* d = peek<C>(call[4], r * n, n, dy.get());
      row_backward<C>(n, in, d, gamma.get(), layer ? call[2].as<C>()[r] : C(0), call[3].as<C>()[r],
                      layer, g.get(), d_gamma.get(), shift);
      write<C>(call[5], r * n, n, g.get());
    }
    if (call[6].data) add_to<C>(call[6], 0, n, d_gamma.get());
    if (shift) add_to<C>(call[7], 0, n, shift);
  });
}

void qk_norm(const ReferenceCall& call) {
  const auto a = call.get<HeadsAttr>();
  const int64_t normed = a.query_heads + a.kv_heads, d = a.head_dim;
  const int64_t tokens = call[0].shape[0], width = call[0].shape[1];
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> row(width), gamma_q(d), gamma_k(d);
    read<C>(call[1], 0, d, gamma_q.get());
    read<C>(call[2], 0, d, gamma_k.get());
    for (int64_t t = 0; t < tokens; ++t) {
      read<C>(call[0], t * width, width, row.get());
      for (int64_t h = 0; h < normed; ++h) {
        C* x = row.get() + h * d;
        const C* gamma = h < a.query_heads ? gamma_q.get() : gamma_k.get();
        const C mean_square = dot<C>(x, x, d) / static_cast<C>(d);
        const C rstd = C(1) / std::sqrt(mean_square + static_cast<C>(a.epsilon));
        for (int64_t i = 0; i < d; ++i) x[i] = x[i] * rstd * gamma[i];
        call[4].as<C>()[t * normed + h] = rstd;
      }
      write<C>(call[3], t * width, width, row.get());
    }
  });
}

void qk_norm_backward(const ReferenceCall& call) {
  const auto a = call.get<HeadsAttr>();
  const int64_t normed = a.query_heads + a.kv_heads, d = a.head_dim;
  const int64_t tokens = call[0].shape[0], width = call[0].shape[1];
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> row(width), out(width), gamma_q(d), gamma_k(d), d_q(d), d_k(d), g(d);
    read<C>(call[1], 0, d, gamma_q.get());
    read<C>(call[2], 0, d, gamma_k.get());
    std::fill_n(d_q.get(), d, C(0));
    std::fill_n(d_k.get(), d, C(0));
    for (int64_t t = 0; t < tokens; ++t) {
      const C* x = peek<C>(call[0], t * width, width, row.get());
      read<C>(call[4], t * width, width, out.get());
      for (int64_t h = 0; h < normed; ++h) {
        const bool query = h < a.query_heads;
        row_backward<C>(d, x + h * d, out.get() + h * d, query ? gamma_q.get() : gamma_k.get(),
                        C(0), call[3].as<C>()[t * normed + h], false, g.get(),
                        query ? d_q.get() : d_k.get(), nullptr);
        std::copy_n(g.get(), d, out.get() + h * d);
      }
      write<C>(call[5], t * width, width, out.get());
    }
    if (call[6].data) add_to<C>(call[6], 0, d, d_q.get());
    if (call[7].data) add_to<C>(call[7], 0, d, d_k.get());
  });
}

}  // namespace moetwin::reference
