#include "core/ops/reference/block.h"
#include "core/ops/reference/draws.h"
#include "core/ops/reference/table.h"
#include "core/ops/router.h"

namespace moetwin::reference {
namespace {

/// x[i] *= the factor of element (first_token, 0) + first + i.
template <class C>
void multiply(const RouterInputAttr& a, int64_t h, int64_t first, int64_t n, C* x) {
  if (a.jitter == 0) return;
  const C low = static_cast<C>(1 - a.jitter), range = static_cast<C>(2 * a.jitter);
  alignas(64) float draws[kBlock];
  draw_uniform(a.key, static_cast<uint64_t>(a.first_token * h + first), n, draws);
  for (int64_t i = 0; i < n; ++i) x[i] *= low + range * static_cast<C>(draws[i]);
}

}  // namespace

void router_input(const ReferenceCall& call) {
  const auto a = call.get<RouterInputAttr>();
  const int64_t n = elements(call[0]), h = call[0].shape[1];
  with_compute(call[1].dtype, [&]<class C>(C) {
    alignas(64) C block[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      read<C>(call[0], i, m, block);
      multiply<C>(a, h, i, m, block);
      write<C>(call[1], i, m, block);
    }
  });
}

void router_input_backward(const ReferenceCall& call) {
  const auto a = call.get<RouterInputAttr>();
  const int64_t n = elements(call[0]), h = call[0].shape[1];
  with_compute(call[0].dtype, [&]<class C>(C) {
    alignas(64) C block[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      read<C>(call[0], i, m, block);
      multiply<C>(a, h, i, m, block);
      add_to<C>(call[1], i, m, block);
    }
  });
}

}  // namespace moetwin::reference
