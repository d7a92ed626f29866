#include <limits>

#include "core/ops/reference/block.h"
#include "core/ops/reference/router_weights.h"
#include "core/ops/reference/table.h"
#include "core/ops/router.h"

namespace moetwin::reference {
namespace {

/// One scope of the balance losses: rows [first, first + rows).
struct Scope {
  int64_t first, rows;
};
int64_t scope_rows(const RouterLossAttr& a, int64_t tokens) {
  return a.rows_per_scope > 0 ? a.rows_per_scope : tokens;
}

/// f_i = share of the assignments, from the global counts or the scope's own ids.
void shares(const RouterLossAttr& a, const int32_t* ids, Scope s, const int64_t* global,
            int64_t experts, double* f) {
  std::fill_n(f, experts, 0.0);
  const double k = static_cast<double>(a.top_k);
  if (global) {
    for (int64_t e = 0; e < experts; ++e)
      f[e] = static_cast<double>(global[e]) / (k * a.global_tokens);
    return;
  }
  for (int64_t i = s.first * a.top_k; i < (s.first + s.rows) * a.top_k; ++i)
    if (ids[i] >= 0) f[ids[i]] += 1;
  for (int64_t e = 0; e < experts; ++e) f[e] /= k * static_cast<double>(s.rows);
}

template <class C>
C row_total(const C* p, int64_t n, Score score) {
  return score == Score::softmax ? C(1) : sum_of<C>(p, n);
}

template <class C>
C log_sum_exp(const C* x, int64_t n, C* buffer, C* sum) {
  const C top = max_of<C>(x, n);
  *sum = exp_shifted<C>(x, buffer, n, C(1), top);
  return top + std::log(*sum);
}

template <class C>
void sum_scores(const C* probs, int64_t tokens, int64_t experts, double* total) {
  std::fill_n(total, experts, 0.0);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t e = 0; e < experts; ++e) total[e] += static_cast<double>(probs[t * experts + e]);
}

template <class C>
void losses(const ReferenceCall& call) {
  const auto a = call.get<RouterLossAttr>();
  const int64_t tokens = call[0].shape[0], experts = call[0].shape[1];
  if (tokens == 0) return;
  const C *logits = call[0].as<const C>(), *probs = call[1].as<const C>();
  const int32_t* ids = call[2].as<const int32_t>();
  const Scratch<double> f(experts), mean(experts);
  const int64_t rows = scope_rows(a, tokens);
  C* out = call[4].as<C>();
  double balance = 0;
  for (int64_t first = 0; first < tokens; first += rows) {
    shares(a, ids, {first, rows}, call[3].as<const int64_t>(), experts, f.get());
    std::fill_n(mean.get(), experts, 0.0);
    for (int64_t t = first; t < first + rows; ++t) {
      const C* p = probs + t * experts;
      const C total = row_total<C>(p, experts, a.score);
      // All scores 0 (a sigmoid far below): the token is counted as undecided.
      for (int64_t e = 0; e < experts; ++e)
        mean[e] +=
            total > 0 ? static_cast<double>(p[e] / total) : 1.0 / static_cast<double>(experts);
    }
    for (int64_t e = 0; e < experts; ++e) out[4 + e] += static_cast<C>(mean[e]);
    for (int64_t e = 0; e < experts; ++e)
      balance += f[e] * mean[e] * static_cast<double>(experts) / static_cast<double>(rows);
  }
  const Scratch<C> buffer(experts);
  double z = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    C sum;
    const double lse =
        static_cast<double>(log_sum_exp<C>(logits + t * experts, experts, buffer.get(), &sum));
    z += lse * lse;
  }
  sum_scores<C>(probs, tokens, experts, mean.get());
  double total = 0, squares = 0;
  for (int64_t e = 0; e < experts; ++e) total += mean[e];
  const double average = total / static_cast<double>(experts);
  for (int64_t e = 0; e < experts; ++e) squares += (mean[e] - average) * (mean[e] - average);
  shares(a, ids, {0, tokens}, nullptr, experts, f.get());
  const double assignments = static_cast<double>(a.top_k * tokens);
  double load_mean = 0, load_squares = 0;
  for (int64_t e = 0; e < experts; ++e) load_mean += f[e] * assignments;
  load_mean /= static_cast<double>(experts);
  for (int64_t e = 0; e < experts; ++e) {
    const double d = f[e] * assignments - load_mean;
    load_squares += d * d;
  }
  const double n = static_cast<double>(tokens), m = static_cast<double>(experts);
  out[0] += static_cast<C>(a.weight * balance * static_cast<double>(rows) / n);
  out[1] += static_cast<C>(a.weight * z / n);
  out[2] += static_cast<C>(average > 0 ? a.weight * squares / m / (average * average) : 0.0);
  out[3] += static_cast<C>(a.weight * load_squares / m);
}

/// d_scores of one token from the gradient of its weights.
template <class C>
void from_weights(const RouterLossAttr& a, const C* p, const int32_t* ids, const C* d_weights,
                  C* chosen, C* d) {
  const C scale = static_cast<C>(a.weight_scale);
  const int64_t k = a.top_k;
  for (int64_t j = 0; j < k; ++j) chosen[j] = ids[j] >= 0 ? p[ids[j]] : C(0);
  if (a.p_norm <= 0) {
    for (int64_t j = 0; j < k; ++j)
      if (ids[j] >= 0) d[ids[j]] += scale * d_weights[j];
    return;
  }
  if (k == 1) return;  // the weight is the constant 1
  const C norm = score_norm<C>(chosen, k, a.p_norm);
  if (!(norm > 0)) return;
  // w_j = scale u_j, u_j = s_j / norm: dw_j/ds_i = scale / norm (delta_ij - u_j u_i^(p-1)).
  C along = 0;
  for (int64_t j = 0; j < k; ++j) along += d_weights[j] * (chosen[j] / norm);
  for (int64_t j = 0; j < k; ++j) {
    if (ids[j] < 0) continue;
    const C u = chosen[j] / norm;
    // Below p = 1 the power of a score that is too small to be told from 0 has no bound, but the
    // score's own derivative by its logit goes to 0 faster.
    const bool lost = a.p_norm < 1 && !(u > std::numeric_limits<C>::min());
    const C power = a.p_norm == 1   ? C(1)
                    : a.p_norm == 2 ? u
                    : lost          ? C(0)
                                    : static_cast<C>(std::pow(u, static_cast<C>(a.p_norm - 1)));
    d[ids[j]] += scale / norm * (d_weights[j] - along * power);
  }
}

template <class C>
void backward(const ReferenceCall& call) {
  const auto a = call.get<RouterLossAttr>();
  const int64_t tokens = call[0].shape[0], experts = call[0].shape[1], k = a.top_k;
  if (tokens == 0) return;
  const C *logits = call[0].as<const C>(), *probs = call[1].as<const C>();
  const int32_t* ids = call[2].as<const int32_t>();
  const Scratch<double> f(experts), total(experts);
  const Scratch<C> d(experts), balance(experts), importance(experts), buffer(experts), chosen(k);
  std::fill_n(importance.get(), experts, C(0));
  if (a.importance != 0) {
    // CV^2 = E sum I^2 / (sum I)^2 - 1, so d/dI_i = 2 E / S^2 (I_i - sum I^2 / S), S = sum I.
    sum_scores<C>(probs, tokens, experts, total.get());
    double sum = 0, squares = 0;
    for (int64_t e = 0; e < experts; ++e) sum += total[e], squares += total[e] * total[e];
    for (int64_t e = 0; e < experts && sum > 0; ++e)
      importance[e] = static_cast<C>(a.importance * 2 * static_cast<double>(experts) / (sum * sum) *
                                     (total[e] - squares / sum));
  }
  const int64_t rows = scope_rows(a, tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    if (a.aux != 0 && t % rows == 0) {
      shares(a, ids, {t, rows}, call[5].as<const int64_t>(), experts, f.get());
      for (int64_t e = 0; e < experts; ++e)
        balance[e] = static_cast<C>(a.aux * static_cast<double>(experts) * f[e] /
                                    static_cast<double>(tokens));
    }
    const C* p = probs + t * experts;
    C* out = call[6].as<C>() + t * experts;
    std::copy_n(importance.get(), experts, d.get());
    from_weights<C>(a, p, ids + t * k, call[4].as<const C>() + t * k, chosen.get(), d.get());
    if (a.aux != 0) {
      // Of P_i = mean of p_i / sum p: (g_i - g . p / sum) / sum; softmax scores sum to 1 already.
      const C sum = row_total<C>(p, experts, a.score);
      const C along =
          a.score == Score::softmax || !(sum > 0) ? C(0) : dot<C>(balance.get(), p, experts) / sum;
      for (int64_t e = 0; e < experts && sum > 0; ++e) d[e] += (balance[e] - along) / sum;
    }
    if (a.score == Score::softmax) {
      const C along = dot<C>(d.get(), p, experts);
      for (int64_t e = 0; e < experts; ++e) out[e] = p[e] * (d[e] - along);
    } else {
      for (int64_t e = 0; e < experts; ++e) out[e] = d[e] * p[e] * (C(1) - p[e]);
    }
    if (a.z != 0) {
      C sum;
      const C lse = log_sum_exp<C>(logits + t * experts, experts, buffer.get(), &sum);
      const C factor = static_cast<C>(2 * a.z / static_cast<double>(tokens)) * lse / sum;
      for (int64_t e = 0; e < experts; ++e) out[e] += factor * buffer[e];
    }
  }
}

}  // namespace

void router_losses(const ReferenceCall& call) {
  with_compute(call[0].dtype, [&]<class C>(C) { losses<C>(call); });
}
void router_backward(const ReferenceCall& call) {
  with_compute(call[0].dtype, [&]<class C>(C) { backward<C>(call); });
}

}  // namespace moetwin::reference
