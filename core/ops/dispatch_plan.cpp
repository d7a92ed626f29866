#include "core/ops/dispatch.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kOperands[] = {{"ids", Access::read},     {"weights", Access::read},
                                 {"counts", Access::read},  {"position", Access::write},
                                 {"source", Access::write}, {"kept", Access::write}};

void check(const OpCall& c) {
  const Check check(c);
  const auto a = c.get<PlanAttr>();
  check.that(a.experts >= 1 && a.top_k >= 1 && a.chunks >= 1 && a.capacity >= -1,
             "experts, top_k and chunks are positive, capacity is -1 or more");
  check.rank(0, 2);
  const int64_t tokens = check.extent(0, 0), assignments = tokens * a.top_k;
  check.shape(0, {tokens, a.top_k});
  check.dtype(0, DType::i32);
  check.same_shape(1, 0);
  check.real(1);
  check.shape(2, {a.experts + 1});
  check.dtype(2, DType::i64);
  for (int i : {3, 4}) check.shape(i, {assignments}), check.dtype(i, DType::i32);
  check.shape(5, {a.chunks * a.experts + 1});
  check.dtype(5, DType::i64);
  check.that(assignments < int64_t{1} << 31, "assignments are numbered in 32 bits");
}
void kernels(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const double ids = bytes_of(c[0]), n = elements_of(c[0]);
  const auto a = c.get<PlanAttr>();
  if (choice == KernelClass::moetwin) {
    out.push_back(simple_kernel(KernelKind::sort, DType::i32, 4 * n, traffic(c)));
    return;
  }
  // A radix sort of (id, assignment) pairs of 64-bit numbers, two passes, its inverse, a histogram.
  const double pairs = 4 * ids;
  if (a.capacity >= 0)
    out.push_back(simple_kernel(KernelKind::sort, DType::f32, 2 * n, pairs + bytes_of(c[1])));
  for (int pass = 0; pass < 2; ++pass)
    out.push_back(simple_kernel(KernelKind::sort, DType::i64, 4 * n, 2 * pairs));
  out.push_back(simple_kernel(KernelKind::gather, DType::i64, 0, pairs));
  out.push_back(simple_kernel(KernelKind::sort, DType::i64, 0, 2 * ids + bytes_of(c[5])));
}
/// Per-expert offsets of every chunk.
int64_t workspace(const OpCall& c) { return c[5].bytes(); }

}  // namespace

constinit const Op op_dispatch_plan = {
    "dispatch_plan", index_of(OpIndex::dispatch_plan), kOperands, check, kernels, workspace};

OpCall dispatch_plan(const Tensor& ids, const Tensor& weights, const Tensor& counts,
                     const Tensor& position, const Tensor& source, const Tensor& kept,
                     PlanAttr attr) {
  return make_call(op_dispatch_plan, {ids, weights, counts, position, source, kept}, attr);
}

int64_t chunk_begin(int64_t tokens, int64_t chunks, int64_t chunk) {
  const int64_t size = (tokens + chunks - 1) / chunks;
  const int64_t begin = chunk * size;
  return begin < tokens ? begin : tokens;
}

}  // namespace moetwin
