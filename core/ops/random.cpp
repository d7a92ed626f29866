// Initialisation and dropout: draws by global element index.

#include "core/ops/random.h"

#include "core/ops/elementwise.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kInit[] = {{"y", Access::write}};
constexpr Operand kDropout[] = {{"x", Access::read}, {"y", Access::write}};

void check_init(const OpCall& c) {
  const Check check(c);
  const auto a = c.get<InitAttr>();
  check.real(0);
  check.that(c[0].elements() == a.local[0] * a.local[1] * a.row_elements(),
             "y has the elements of the local extents");
  check.that(a.column >= 0 && a.column + a.local[2] <= a.row_elements(),
             "the columns lie inside the rows of y");
  for (int i = 0; i < 3; ++i)
    check.that(a.offset[i] >= 0 && a.offset[i] + a.local[i] <= a.global[i],
               "the slice lies inside the global extents");
}
void kernels_init(const OpCall& c, const KernelChoice&, KernelList& out) {
  const auto a = c.get<InitAttr>();
  const double n = static_cast<double>(a.local[0] * a.local[1] * a.local[2]);
  out.push_back(simple_kernel(KernelKind::elementwise, c[0].dtype, 2 * kFlopPerDraw * n,
                              n * static_cast<double>(dtype_size(c[0].dtype))));
}
void check_dropout(const OpCall& c) {
  const Check check(c);
  const auto a = c.get<DropoutAttr>();
  check.real(0);
  check.same_shape(1, 0);
  check.dtype(1, c[0].dtype);
  check.that(a.p >= 0 && a.p < 1, "0 <= p < 1");
}
void kernels_dropout(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const double n = elements_of(c[0]);
  const auto add = [&](double flop, double bytes) {
    out.push_back(simple_kernel(KernelKind::elementwise, c[0].dtype, flop * n, bytes));
  };
  if (choice == KernelClass::moetwin) {  // draws again in the backward
    add(kFlopPerDraw, traffic(c));
    return;
  }
  // Frameworks keep the mask, a byte an element. The forward is in place here, the backward is not.
  const bool backward = c[0].buffer != c[1].buffer;
  if (backward)
    add(1, traffic(c) + n);
  else if (choice == KernelClass::torch_fsdp)
    add(flop_per_dropout(choice), traffic(c) + n);
  else  // one kernel with the bias and the addition after it, whose bytes hide a half
    add(flop_per_dropout(choice) / 2, n);
}
int64_t saved_dropout(const OpCall& c, const KernelChoice& choice) {
  return choice == KernelClass::moetwin ? 0 : c[0].elements();
}

}  // namespace

constinit const Op op_init_normal = {
    "init_normal", index_of(OpIndex::init_normal), kInit, check_init, kernels_init, no_workspace};
constinit const Op op_dropout = {"dropout",       index_of(OpIndex::dropout),
                                 kDropout,        check_dropout,
                                 kernels_dropout, no_workspace,
                                 saved_dropout};

OpCall init_normal(const Tensor& y, InitAttr attr) { return make_call(op_init_normal, {y}, attr); }
OpCall dropout(const Tensor& x, const Tensor& y, DropoutAttr attr) {
  return make_call(op_dropout, {x, y}, attr);
}

}  // namespace moetwin
