#include "core/ops/elementwise.h"
#include "core/ops/reference/block.h"
#include "core/ops/reference/draws.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {
static_assert(kBlock <= kDraws);

void init_normal(const ReferenceCall& call) {
  const auto a = call.get<InitAttr>();
  with_compute(call[0].dtype, [&]<class C>(C) {
    alignas(64) C block[kBlock];
    alignas(64) double draws[kBlock];
    for (int64_t i = 0; i < a.local[0]; ++i)
      for (int64_t j = 0; j < a.local[1]; ++j) {
        int64_t at = (i * a.local[1] + j) * a.row_elements() + a.column;
        const int64_t row =
            ((a.offset[0] + i) * a.global[1] + a.offset[1] + j) * a.global[2] + a.offset[2];
        for (int64_t l = 0; l < a.local[2]; l += kBlock) {
          const int64_t m = std::min(kBlock, a.local[2] - l);
          draw_normal(a.key, static_cast<uint64_t>(row + l), m, draws);
          for (int64_t x = 0; x < m; ++x) block[x] = static_cast<C>(a.std * draws[x]);
          write<C>(call[0], at, m, block);
          at += m;
        }
      }
  });
}

void dropout(const ReferenceCall& call) {
  const auto a = call.get<DropoutAttr>();
  const int64_t n = elements(call[0]);
  with_compute(call[0].dtype, [&]<class C>(C) {
    alignas(64) C block[kBlock];
    alignas(64) float draws[kBlock];
    const C kept = static_cast<C>(1 / (1 - a.p));
    const float p = static_cast<float>(a.p);
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      read<C>(call[0], i, m, block);
      draw_uniform(a.key, static_cast<uint64_t>(a.element_offset + i), m, draws);
      for (int64_t x = 0; x < m; ++x) block[x] = draws[x] > p ? block[x] * kept : C(0);
      write<C>(call[1], i, m, block);
    }
  });
}

}  // namespace moetwin::reference
