#include "core/ops/elementwise.h"

#include <cstring>

#include "core/ops/reference/block.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {
namespace ei = Eigen::internal;

void add(const ReferenceCall& call) {
  with_compute(call[0].dtype, [&]<class C>(C) {
    map<C>({call[0], call[1]}, call[2], 0, elements(call[2]),
           [](const Packet<C>* x) { return ei::padd(x[0], x[1]); });
  });
}

void scaled_add(const ReferenceCall& call) {
  const double alpha = call.get<ScaleAttr>().alpha;
  with_compute(call[1].dtype, [&]<class C>(C) {
    const Packet<C> factor = set1<C>(static_cast<C>(alpha));
    map<C>({call[0], call[1]}, call[1], 0, elements(call[1]),
           [factor](const Packet<C>* x) { return ei::padd(x[1], ei::pmul(factor, x[0])); });
  });
}

void scale(const ReferenceCall& call) {
  const double alpha = call.get<ScaleAttr>().alpha;
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Packet<C> factor = set1<C>(static_cast<C>(alpha));
    map<C>({call[0]}, call[1], 0, elements(call[1]),
           [factor](const Packet<C>* x) { return ei::pmul(factor, x[0]); });
  });
}

void cast(const ReferenceCall& call) {
  const bool wide = call[0].dtype == DType::f64 || call[1].dtype == DType::f64;
  with_compute(wide ? DType::f64 : DType::f32, [&]<class C>(C) {
    map<C>({call[0]}, call[1], 0, elements(call[1]), [](const Packet<C>* x) { return x[0]; });
  });
}

void copy(const ReferenceCall& call) {
  std::memmove(call[1].data, call[0].data,
               static_cast<size_t>(elements(call[0]) * size_of(call[0].dtype)));
}

void fill(const ReferenceCall& call) {
  const double value = call.get<FillAttr>().value;
  const TensorView& y = call[0];
  const int64_t n = elements(y);
  if (y.dtype == DType::i32) {
    std::fill_n(y.as<int32_t>(), n, static_cast<int32_t>(value));
  } else if (y.dtype == DType::i64) {
    std::fill_n(y.as<int64_t>(), n, static_cast<int64_t>(value));
  } else {
    with_compute(y.dtype, [&]<class C>(C) {
      alignas(64) C block[kBlock];
      std::fill_n(block, kBlock, static_cast<C>(value));
      for (int64_t i = 0; i < n; i += kBlock) write<C>(y, i, std::min(kBlock, n - i), block);
    });
  }
}

void sum_parts(const ReferenceCall& call) {
  const int64_t parts = call.get<PartsAttr>().parts, n = elements(call[1]);
  with_compute(call[0].dtype, [&]<class C>(C) {
    alignas(64) C sum[kBlock], part[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      read<C>(call[0], i, m, sum);
      for (int64_t p = 1; p < parts; ++p) {
        const C* x = peek<C>(call[0], p * n + i, m, part);
        for (int64_t j = 0; j < m; ++j) sum[j] += x[j];
      }
      write<C>(call[1], i, m, sum);
    }
  });
}

}  // namespace moetwin::reference
