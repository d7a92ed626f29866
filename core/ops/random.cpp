// Initialisation and dropout: draws by global element index.

#include "core/ops/elementwise.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kInit[] = {{"y", Access::write}};
constexpr Operand kDropout[] = {{"x", Access::read}, {"y", Access::write}};
/// Ten Philox rounds of some ten integer operations give four draws.
constexpr double kFlopPerDraw = 25;

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
void kernels_init(const OpCall& c, KernelClass, KernelList& out) {
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
void kernels_dropout(const OpCall& c, KernelClass kernel_class, KernelList& out) {
  // Frameworks keep the mask, one byte an element; moetwin draws it again in the backward.
  const double mask = kernel_class == KernelClass::moetwin ? 0 : elements_of(c[0]);
  out.push_back(simple_kernel(KernelKind::elementwise, c[0].dtype, kFlopPerDraw * elements_of(c[0]),
                              traffic(c) + mask));
}

}  // namespace

constinit const Op op_init_normal = {
    "init_normal", index_of(OpIndex::init_normal), kInit, check_init, kernels_init, no_workspace};
constinit const Op op_dropout = {
    "dropout", index_of(OpIndex::dropout), kDropout, check_dropout, kernels_dropout, no_workspace};

OpCall init_normal(const Tensor& y, InitAttr attr) { return make_call(op_init_normal, {y}, attr); }
OpCall dropout(const Tensor& x, const Tensor& y, DropoutAttr attr) {
  return make_call(op_dropout, {x, y}, attr);
}

}  // namespace moetwin
