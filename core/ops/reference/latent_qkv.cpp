#include "core/ops/attention.h"
#include "core/ops/reference/block.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {
namespace {

/// Cosines and sines of the pairs at one position.
template <class C>
class Turn {
 public:
  explicit Turn(const LatentAttr& a) : a_(a), half_(a.rope_dim / 2), cos_(half_), sin_(half_) {}
  void go_to(int64_t position) const {
    for (int64_t i = 0; i < half_; ++i) {
      const double angle = static_cast<double>(position) * a_.step(i, a_.rope_dim);
      cos_[i] = static_cast<C>(a_.magnitude * std::cos(angle));
      sin_[i] = static_cast<C>(a_.magnitude * std::sin(angle));
    }
  }
  void forward(C* x) const {
    for (int64_t i = 0; i < half_; ++i) {
      const C u = x[i], v = x[i + half_];
      x[i] = u * cos_[i] - v * sin_[i];
      x[i + half_] = u * sin_[i] + v * cos_[i];
    }
  }
  void back(C* x) const {
    for (int64_t i = 0; i < half_; ++i) {
      const C u = x[i], v = x[i + half_];
      x[i] = u * cos_[i] + v * sin_[i];
      x[i + half_] = v * cos_[i] - u * sin_[i];
    }
  }

 private:
  const LatentAttr a_;
  int64_t half_;
  Scratch<C> cos_, sin_;
};

/// Places within a row of the packed projections and of kv.
struct Rows {
  int64_t dim, q_width, kv_head, kv_width, qkv_width;
  explicit Rows(const LatentAttr& a)
      : dim(a.nope_dim + a.rope_dim),
        q_width(a.heads * dim),
        kv_head(a.nope_dim + a.value_dim),
        kv_width(a.heads * kv_head),
        qkv_width(2 * q_width + a.heads * a.value_dim) {}
};

}  // namespace

void latent_qkv(const ReferenceCall& call) {
  const auto a = call.get<LatentAttr>();
  const Rows r(a);
  const int64_t tokens = call[3].shape[0];
  with_compute(call[3].dtype, [&]<class C>(C) {
    const Turn<C> turn(a);
    const Scratch<C> kv(r.kv_width), rope(a.rope_dim), out(r.qkv_width);
    for (int64_t position = 0; position < a.sequence_length; ++position) {
      turn.go_to(position);
      for (int64_t t = position; t < tokens; t += a.sequence_length) {
        read<C>(call[0], t * r.q_width, r.q_width, out.get());
        read<C>(call[1], t * r.kv_width, r.kv_width, kv.get());
        read<C>(call[2], t * a.rope_dim, a.rope_dim, rope.get());
        turn.forward(rope.get());
        for (int64_t h = 0; h < a.heads; ++h) {
          turn.forward(out.get() + h * r.dim + a.nope_dim);
          const C* from = kv.get() + h * r.kv_head;
          C* key = out.get() + r.q_width + h * r.dim;
          std::copy_n(from, a.nope_dim, key);
          std::copy_n(rope.get(), a.rope_dim, key + a.nope_dim);
          std::copy_n(from + a.nope_dim, a.value_dim, out.get() + 2 * r.q_width + h * a.value_dim);
        }
        write<C>(call[3], t * r.qkv_width, r.qkv_width, out.get());
      }
    }
  });
}

void latent_qkv_backward(const ReferenceCall& call) {
  const auto a = call.get<LatentAttr>();
  const Rows r(a);
  const int64_t tokens = call[0].shape[0];
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Turn<C> turn(a);
    const Scratch<C> d(r.qkv_width), kv(r.kv_width), rope(a.rope_dim);
    for (int64_t position = 0; position < a.sequence_length; ++position) {
      turn.go_to(position);
      for (int64_t t = position; t < tokens; t += a.sequence_length) {
        read<C>(call[0], t * r.qkv_width, r.qkv_width, d.get());
        std::fill_n(rope.get(), a.rope_dim, C(0));
        for (int64_t h = 0; h < a.heads; ++h) {
          turn.back(d.get() + h * r.dim + a.nope_dim);
          const C* key = d.get() + r.q_width + h * r.dim;
          C* to = kv.get() + h * r.kv_head;
          std::copy_n(key, a.nope_dim, to);
          std::copy_n(d.get() + 2 * r.q_width + h * a.value_dim, a.value_dim, to + a.nope_dim);
          for (int64_t i = 0; i < a.rope_dim; ++i) rope[i] += key[a.nope_dim + i];
        }
        turn.back(rope.get());
        write<C>(call[1], t * r.q_width, r.q_width, d.get());
        write<C>(call[2], t * r.kv_width, r.kv_width, kv.get());
        write<C>(call[3], t * a.rope_dim, a.rope_dim, rope.get());
      }
    }
  });
}

}  // namespace moetwin::reference
