#include "core/ops/router.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kForward[] = {{"x", Access::read}, {"y", Access::write}};
constexpr Operand kBackward[] = {{"dy", Access::read}, {"dx", Access::read_write}};

void check_pair(const OpCall& c, int outer, int inner) {
  const Check check(c);
  check.rank(0, 2);
  check.same_shape(1, 0);
  check.real(outer);
  check.real_of(inner, outer);
  const double jitter = c.get<RouterInputAttr>().jitter;
  check.that(jitter >= 0 && jitter < 1, "0 <= jitter < 1");
}
void check_forward(const OpCall& c) { check_pair(c, 0, 1); }
void check_backward(const OpCall& c) { check_pair(c, 1, 0); }

void kernels(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const bool jitter = c.get<RouterInputAttr>().jitter > 0;
  const double n = elements_of(c[0]), wide = bytes_of(c[1]);
  if (jitter && choice != KernelClass::moetwin)  // draw a tensor of factors first
    out.push_back(simple_kernel(KernelKind::elementwise, c[1].dtype, 25 * n, wide));
  const bool read = jitter && choice != KernelClass::moetwin;
  const double draw = jitter && choice == KernelClass::moetwin ? 25 : 0;
  out.push_back(simple_kernel(KernelKind::elementwise, c[1].dtype, (1 + draw) * n,
                              traffic(c) + (read ? wide : 0)));
}

}  // namespace

constinit const Op op_router_input = {"router_input", index_of(OpIndex::router_input),
                                      kForward,       check_forward,
                                      kernels,        no_workspace};
constinit const Op op_router_input_backward = {"router_input_backward",
                                               index_of(OpIndex::router_input_backward),
                                               kBackward,
                                               check_backward,
                                               kernels,
                                               no_workspace};

OpCall router_input(const Tensor& x, const Tensor& y, RouterInputAttr attr) {
  return make_call(op_router_input, {x, y}, attr);
}
OpCall router_input_backward(const Tensor& dy, const Tensor& dx, RouterInputAttr attr) {
  return make_call(op_router_input_backward, {dy, dx}, attr);
}

}  // namespace moetwin
