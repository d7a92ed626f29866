#pragma once
// What a sharding strategy does around the parts of a model whose parameters it keeps elsewhere. A
// block is the embedding (0), a transformer layer (1 + its number) or the head: Parameter::block.

#include <cstdint>

namespace moetwin {

struct Context;

class UnitHooks {
 public:
  UnitHooks() = default;
  virtual ~UnitHooks() = default;
  UnitHooks(const UnitHooks&) = delete;
  UnitHooks& operator=(const UnitHooks&) = delete;

  /// What is launched next on the compute stream may read the block's parameters, its experts'
  /// excepted.
  virtual void before_forward(Context& context, int64_t block) = 0;
  /// What is launched next may read the parameters of the block's experts too; forward or backward.
  virtual void before_experts(Context& context, int64_t block) = 0;
  /// Nothing reads the block's parameters before the next `before`. `backward`: it will be one.
  virtual void after_forward(Context& context, int64_t block, bool backward) = 0;
  /// What is launched next may read the block's parameters (if `values`), its experts' excepted,
  /// and adds to all its gradients.
  virtual void before_backward(Context& context, int64_t block, bool values) = 0;
  /// Nothing reads the block's parameters before the next `before`; the rest of its gradients is
  /// launched later (zero bubble), before `after_backward`.
  virtual void after_backward_input(Context& context, int64_t block) = 0;
  /// The block's gradients of this micro-batch are launched.
  virtual void after_backward(Context& context, int64_t block) = 0;
};

}  // namespace moetwin
