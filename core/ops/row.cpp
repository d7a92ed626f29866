#include "core/ops/row.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace moetwin {

Check::Check(const OpCall& call) : call_(call) {
  if (static_cast<size_t>(call.count) != call.op->operands.size())
    fail(fmt::format("{} operands given, {} wanted", call.count, call.op->operands.size()));
  for (int i = 0; i < call.count; ++i) {
    const Operand& operand = call.op->operands[static_cast<size_t>(i)];
    if (!operand.optional && !has(i)) fail(fmt::format("operand {} is missing", operand.name));
  }
}

int64_t Check::leading(int i) const {
  int64_t n = 1;
  for (int axis = 0; axis + 1 < call_[i].shape.rank; ++axis) n *= call_[i].shape[axis];
  return n;
}

void Check::shape(int i, std::initializer_list<int64_t> wanted) const {
  if (!has(i)) return;
  const Shape& shape = call_[i].shape;
  bool equal = shape.rank == static_cast<int>(wanted.size());
  int axis = 0;
  for (int64_t extent : wanted) equal = equal && shape[axis++] == extent;
  if (!equal) bad_shape(i, Shape(wanted));
}

void Check::host_rows(int64_t groups, int64_t limit) const {
  that(call_.sizes && static_cast<int64_t>(call_.sizes->size()) == groups,
       "one host row count per group");
  int64_t sum = 0;
  for (int64_t rows : *call_.sizes) {
    that(rows >= 0, "no negative row count");
    sum += rows;
  }
  that(sum <= limit, "the groups' rows fit into the rows given");
}

void Check::bad_rank(int i, int wanted) const {
  fail(fmt::format("operand {} has {} extents, {} wanted",
                   call_.op->operands[static_cast<size_t>(i)].name, call_[i].shape.rank, wanted));
}

void Check::bad_shape(int i, const Shape& wanted) const {
  fail(fmt::format("operand {} has shape {}, {} wanted",
                   call_.op->operands[static_cast<size_t>(i)].name, call_[i].shape.str(),
                   wanted.str()));
}

void Check::bad_dtype(int i, const char* wanted) const {
  fail(fmt::format("operand {} is {}, {} wanted", call_.op->operands[static_cast<size_t>(i)].name,
                   dtype_name(call_[i].dtype), wanted));
}

void Check::broken(const char* rule) const { fail(fmt::format("rule broken: {}", rule)); }

void Check::fail(const std::string& what) const {
  std::string all;
  for (int i = 0; i < call_.count && i < static_cast<int>(call_.op->operands.size()); ++i)
    if (has(i))
      all += fmt::format("{}{} {} {}", all.empty() ? "" : ", ",
                         call_.op->operands[static_cast<size_t>(i)].name, call_[i].shape.str(),
                         dtype_name(call_[i].dtype));
  throw Error(ErrorClass::internal, fmt::format("op {}: {} ({})", call_.op->name, what, all));
}

double traffic(const OpCall& call) {
  double bytes = 0;
  for (int i = 0; i < call.count; ++i) {
    const Tensor& t = call[i];
    if (!t.defined()) continue;
    const bool both = call.op->operands[static_cast<size_t>(i)].access == Access::read_write;
    bytes += static_cast<double>(t.bytes()) * (both ? 2 : 1);
  }
  return bytes;
}

}  // namespace moetwin
