#include "core/ops/attention.h"

#include "core/ops/reference/product.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {
namespace ei = Eigen::internal;
namespace {

constexpr int64_t kQueries = 64;  ///< rows of the score matrix kept at a time

/// Where a head's rows are inside the packed projections.
struct Heads {
  int64_t sequence, dim, value_dim, group, width, query_heads, kv_heads, sequences;
  explicit Heads(const ReferenceCall& call) {
    const auto a = call.get<HeadsAttr>();
    sequence = a.sequence_length;
    dim = a.head_dim;
    value_dim = a.value_width();
    group = a.query_heads / a.kv_heads;
    query_heads = a.query_heads;
    kv_heads = a.kv_heads;
    width = call[0].shape[1];
    sequences = call[0].shape[0] / sequence;
  }
  int64_t query(int64_t token, int64_t head) const { return token * width + head * dim; }
  int64_t key(int64_t token, int64_t kv) const { return token * width + (query_heads + kv) * dim; }
  int64_t value(int64_t token, int64_t kv) const {
    return token * width + (query_heads + kv_heads) * dim + kv * value_dim;
  }
  int64_t out(int64_t token, int64_t head) const {
    return (token * query_heads + head) * value_dim;
  }
};

template <class C>
C scale_of(const ReferenceCall& call) {
  const auto a = call.get<HeadsAttr>();
  return static_cast<C>(a.scale != 0 ? a.scale : 1 / std::sqrt(static_cast<double>(a.head_dim)));
}

template <class C>
void forward_head(const ReferenceCall& call, const Heads& h, int64_t begin, int64_t head, C* scores,
                  C* result) {
  const int64_t kv = head / h.group, d = h.dim, dv = h.value_dim, out_width = h.query_heads * dv;
  const C scale = scale_of<C>(call);
  const Matrix keys = matrix(call[0], h.key(begin, kv), h.width);
  const Matrix values = matrix(call[0], h.value(begin, kv), h.width);
  for (int64_t i = 0; i < h.sequence; i += kQueries) {
    const int64_t rows = std::min(kQueries, h.sequence - i), n = i + rows;
    const Matrix queries = matrix(call[0], h.query(begin + i, head), h.width);
    product<C>(rows, n, d, queries, keys.transposed(), scores, n, false);
    C inverse[kQueries];
    for (int64_t r = 0; r < rows; ++r) {
      C* s = scores + r * n;
      const int64_t seen = i + r + 1;
      const C top = scale * max_of<C>(s, seen);
      const C sum = exp_shifted<C>(s, s, seen, scale, top);
      std::fill(s + seen, s + n, C(0));
      inverse[r] = C(1) / sum;
      call[2].as<C>()[(begin + i + r) * h.query_heads + head] = top + std::log(sum);
    }
    product<C>(rows, dv, n, plain<C>(scores, n), values, result, dv, false);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t x = 0; x < dv; ++x) result[r * dv + x] *= inverse[r];
      write<C>(call[1], (begin + i + r) * out_width + head * dv, dv, result + r * dv);
    }
  }
}

/// Adds this query head's share to d_keys [S, D] and d_values [S, Dv] and writes its part of d_qkv.
template <class C>
void backward_head(const ReferenceCall& call, const Heads& h, int64_t begin, int64_t head, C* p,
                   C* dp, C* result, C* d_keys, C* d_values) {
  const int64_t kv = head / h.group, d = h.dim, dv = h.value_dim, out_width = h.query_heads * dv;
  const C scale = scale_of<C>(call);
  const Matrix keys = matrix(call[0], h.key(begin, kv), h.width);
  const Matrix values = matrix(call[0], h.value(begin, kv), h.width);
  const Scratch<C> out_row(dv), d_row(dv);
  for (int64_t i = 0; i < h.sequence; i += kQueries) {
    const int64_t rows = std::min(kQueries, h.sequence - i), n = i + rows;
    const Matrix queries = matrix(call[0], h.query(begin + i, head), h.width);
    const Matrix d_out = matrix(call[3], h.out(begin + i, head), out_width);
    product<C>(rows, n, d, queries, keys.transposed(), p, n, false);
    product<C>(rows, n, dv, d_out, values.transposed(), dp, n, false);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = h.out(begin + i + r, head), seen = i + r + 1;
      const C delta = dot<C>(peek<C>(call[1], at, dv, out_row.get()),
                             peek<C>(call[3], at, dv, d_row.get()), dv);
      C *pr = p + r * n, *dr = dp + r * n;
      exp_shifted<C>(pr, pr, seen, scale, call[2].as<C>()[(begin + i + r) * h.query_heads + head]);
      for (int64_t j = 0; j < seen; ++j) dr[j] = pr[j] * (dr[j] - delta) * scale;
      std::fill(pr + seen, pr + n, C(0));
      std::fill(dr + seen, dr + n, C(0));
    }
    product<C>(n, d, rows, plain<C>(dp, n).transposed(), queries, d_keys, d, true);
    product<C>(n, dv, rows, plain<C>(p, n).transposed(), d_out, d_values, dv, true);
    product<C>(rows, d, n, plain<C>(dp, n), keys, result, d, false);
    for (int64_t r = 0; r < rows; ++r)
      write<C>(call[4], h.query(begin + i + r, head), d, result + r * d);
  }
}

}  // namespace

void attention(const ReferenceCall& call) {
  const Heads h(call);
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> scores(kQueries * h.sequence), result(kQueries * std::max(h.dim, h.value_dim));
    for (int64_t s = 0; s < h.sequences; ++s)
      for (int64_t head = 0; head < h.query_heads; ++head)
        forward_head<C>(call, h, s * h.sequence, head, scores.get(), result.get());
  });
}

void attention_backward(const ReferenceCall& call) {
  const Heads h(call);
  with_compute(call[0].dtype, [&]<class C>(C) {
    const int64_t size = h.sequence * h.dim, value_size = h.sequence * h.value_dim;
    const Scratch<C> p(kQueries * h.sequence), dp(kQueries * h.sequence),
        result(kQueries * std::max(h.dim, h.value_dim));
    const Scratch<C> d_keys(size), d_values(value_size);
    for (int64_t s = 0; s < h.sequences; ++s)
      for (int64_t kv = 0; kv < h.kv_heads; ++kv) {
        const int64_t begin = s * h.sequence;
        std::fill_n(d_keys.get(), size, C(0));
        std::fill_n(d_values.get(), value_size, C(0));
        for (int64_t g = 0; g < h.group; ++g)
          backward_head<C>(call, h, begin, kv * h.group + g, p.get(), dp.get(), result.get(),
                           d_keys.get(), d_values.get());
        for (int64_t t = 0; t < h.sequence; ++t) {
          write<C>(call[4], h.key(begin + t, kv), h.dim, d_keys.get() + t * h.dim);
          write<C>(call[4], h.value(begin + t, kv), h.value_dim, d_values.get() + t * h.value_dim);
        }
      }
  });
}

}  // namespace moetwin::reference
