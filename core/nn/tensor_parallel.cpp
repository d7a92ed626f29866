#include "core/nn/tensor_parallel.h"

#include "core/base/error.h"

namespace moetwin {

namespace {
Shape with_rows(Shape shape, int64_t rows) {
  shape.dims[0] = rows;
  return shape;
}
}  // namespace

Tensor TensorParallel::slice(const Tensor& x) const {
  if (!group_) return x;
  require(x.shape[0] % size() == 0, "TP divides the tokens of a micro-batch");
  return x.rows(slice_begin(x.shape[0]), x.shape[0] / size());
}

Tensor TensorParallel::gather(Context& context, const Tensor& slice, const char* purpose,
                              MemoryClass memory_class) const {
  if (!group_) return slice;
  const Tensor all = context.memory.allocate(with_rows(slice.shape, slice.shape[0] * size()),
                                             slice.dtype, memory_class, "tokens of the TP group");
  group_->all_gather(slice, all, context.streams.compute, purpose);
  return all;
}

Tensor TensorParallel::sum_to_slice(Context& context, const Tensor& x, const char* purpose) const {
  if (!group_) return x;
  require(x.shape[0] % size() == 0, "TP divides the tokens of a micro-batch");
  const Tensor mine = context.activation(with_rows(x.shape, x.shape[0] / size()), "slice of a sum");
  group_->reduce_scatter(x, mine, ReduceOp::sum, context.streams.compute, purpose);
  return mine;
}

Tensor TensorParallel::enter(Context& context, const Tensor& x) const {
  return sequence_ ? gather(context, x, "sequence parallel") : x;
}

Tensor TensorParallel::leave(Context& context, const Tensor& x) const {
  if (!group_) return x;
  if (sequence_) return sum_to_slice(context, x, "sequence parallel");
  group_->all_reduce(x, x, ReduceOp::sum, context.streams.compute, "tensor parallel");
  return x;
}

}  // namespace moetwin
