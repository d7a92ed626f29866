#include <cstring>

#include "core/ops/dispatch.h"
#include "core/ops/reference/block.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {

void permute(const ReferenceCall& call) {
  const auto a = call.get<RangeAttr>();
  const int64_t row = call[0].shape[1] * size_of(call[0].dtype);
  const int32_t* source = call[1].as<const int32_t>() + a.first;
  const char* x = call[0].as<const char>();
  char* y = call[2].as<char>();
  for (int64_t r = 0; r < a.count; ++r) {
    if (source[r] < 0)
      std::memset(y + r * row, 0, static_cast<size_t>(row));
    else
      std::memcpy(y + r * row, x + (source[r] / a.top_k - a.slice) * row, static_cast<size_t>(row));
  }
}

void permute_backward(const ReferenceCall& call) {
  const auto a = call.get<RangeAttr>();
  const int64_t h = call[2].shape[1], first_row = (a.slice + a.first) * a.top_k;
  const int32_t* position = call[1].as<const int32_t>();
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> sum(h), row(h);
    for (int64_t t = a.first; t < a.first + a.count; ++t) {
      std::fill_n(sum.get(), h, C(0));
      for (int64_t j = 0; j < a.top_k; ++j) {
        const int64_t at = position[t * a.top_k + j];
        if (at < 0) continue;
        const C* d = peek<C>(call[0], (at - first_row) * h, h, row.get());
        for (int64_t i = 0; i < h; ++i) sum[i] += d[i];
      }
      write<C>(call[2], t * h, h, sum.get());
    }
  });
}

void combine(const ReferenceCall& call) {
  const auto a = call.get<RangeAttr>();
  const int64_t h = call[3].shape[1], first_row = (a.slice + a.first) * a.top_k;
  const int32_t* position = call[2].as<const int32_t>();
  with_compute(call[0].dtype, [&]<class C>(C) {
    const C* weights = call[1].as<const C>();
    const Scratch<C> sum(h), row(h);
    for (int64_t t = a.first; t < a.first + a.count; ++t) {
      std::fill_n(sum.get(), h, C(0));
      for (int64_t j = 0; j < a.top_k; ++j) {
        const int64_t at = position[t * a.top_k + j];
        if (at < 0) continue;
        const C* y = peek<C>(call[0], (at - first_row) * h, h, row.get());
        const C w = weights[t * a.top_k + j];
        for (int64_t i = 0; i < h; ++i) sum[i] += w * y[i];
      }
      write<C>(call[3], t * h, h, sum.get());
    }
  });
}

void combine_backward(const ReferenceCall& call) {
  const auto a = call.get<RangeAttr>();
  const int64_t h = call[0].shape[1], rows = call[1].shape[0];
  const int64_t first_slot = a.first * a.top_k, first_row = first_slot + a.slice * a.top_k;
  const int32_t* position = call[3].as<const int32_t>();
  with_compute(call[0].dtype, [&]<class C>(C) {
    const C* weights = call[2].as<const C>();
    C* d_weights = call[5].as<C>();
    const Scratch<C> d_row(h), y_row(h), out(h);
    int64_t placed = 0;
    for (int64_t i = first_slot; i < first_slot + a.count * a.top_k; ++i)
      placed += position[i] >= 0;
    if (placed < rows)  // rows of dropped assignments
      std::memset(call[4].data, 0, static_cast<size_t>(rows * h * size_of(call[4].dtype)));
    for (int64_t t = a.first; t < a.first + a.count; ++t) {
      const C* d = peek<C>(call[0], t * h, h, d_row.get());
      for (int64_t j = 0; j < a.top_k; ++j) {
        const int64_t slot = t * a.top_k + j, at = position[slot];
        if (at < 0) {
          d_weights[slot] = 0;
          continue;
        }
        const C w = weights[slot];
        d_weights[slot] = dot<C>(d, peek<C>(call[1], (at - first_row) * h, h, y_row.get()), h);
        for (int64_t i = 0; i < h; ++i) out[i] = w * d[i];
        write<C>(call[4], (at - first_row) * h, h, out.get());
      }
    }
  });
}

void regroup(const ReferenceCall& call) {
  const int64_t row = call[0].shape[1] * size_of(call[0].dtype);
  const std::vector<int64_t>& s = *call.sizes;
  for (size_t i = 0; i < s.size(); i += 3)
    std::memcpy(call[1].as<char>() + s[i + 1] * row, call[0].as<const char>() + s[i] * row,
                static_cast<size_t>(s[i + 2] * row));
}

}  // namespace moetwin::reference
