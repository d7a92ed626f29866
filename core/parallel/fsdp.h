#pragma once
// Fully sharded data parallel: between uses each rank keeps its share of a unit's parameters and
// gradients only. A unit is a transformer layer (or embedding, or head), its experts one of their
// own: they are shared over expert-DP, and their gather travels before the token exchange that they
// wait for. Parameters are gathered on a stream of their own and freed after use; gradients are
// reduce-scattered on the reduction stream after the backward of each micro-batch.
//
// Accumulation adds shares: every micro-batch is reduced (PyTorch without no_sync), because keeping
// whole gradients over micro-batches would undo what sharding saves.

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "core/nn/unit_hooks.h"
#include "core/parallel/communicators.h"
#include "core/parallel/flat_parameters.h"
#include "core/parallel/gradient_reducer.h"

namespace moetwin {

class Fsdp : public UnitHooks {
 public:
  /// Takes care of the groups that shard everything; the others are as if it were not there.
  /// `reducer`: whose gathered parameters blocks wait for; null: nobody's.
  Fsdp(Context& context, const Grid& grid, const DistributedConfig& config,
       std::vector<FlatGroup>& groups, GradientReducer* reducer = nullptr);

  void before_forward(Context& context, int64_t block) override;
  void before_experts(Context& context, int64_t block) override;
  void after_forward(Context& context, int64_t block, bool backward) override;
  void before_backward(Context& context, int64_t block, bool values) override;
  void after_backward_input(Context& context, int64_t block) override;
  void after_backward(Context& context, int64_t block) override;

  /// Reduced gradients start from nothing.
  void begin_step();
  /// Compute waits for all reductions; gathered parameters, soon outdated, are let go.
  void finish(Context& context);

 private:
  /// Communicators of one reduction group; null where they would have one member.
  struct Links {
    std::unique_ptr<Communicator> gather;   ///< shares of parameters; gather stream
    std::unique_ptr<Communicator> scatter;  ///< gradients; reduction stream
    std::unique_ptr<Communicator> copies;   ///< shares of gradients over equal shares; reduction
  };
  /// A bucket of a group: what one collective moves.
  struct Part {
    FlatGroup* group = nullptr;
    const FlatBucket* bucket = nullptr;
    const Links* links = nullptr;
    Tensor values, gradients;  ///< whole, while they are there
    bool reduced = false;      ///< the kept share holds gradients of this step
  };
  enum class State : uint8_t { away, gathered, let_go };
  struct Unit {
    int64_t block = 0;
    std::vector<Part> dense, experts;
    State state = State::away;
    bool in_forward = false, in_backward = false;  ///< somebody reads the values
    int64_t owing = 0;  ///< micro-batches some of whose gradients are launched later
    Event dense_arrived, experts_arrived;
    Event last_use;  ///< of values that were let go
  };

  Unit* unit(int64_t block);
  void gather(Context& context, int64_t block, bool ahead);
  void gather_part(Context& context, Part& part);
  /// Nothing while a forward or a backward beside this one still reads the values.
  void let_go(Context& context, Unit& unit);
  /// Returns the memory of what was let go first, once the compute stream is through with it.
  void return_oldest(Context& context);
  void reduce_part(Context& context, Part& part);
  static void attach(const Unit& unit, bool there);

  GradientReducer* reducer_;
  bool reshard_after_forward_, forward_prefetch_, overlap_;
  bool prefetch_before_ = false, prefetch_after_ = false;  ///< in the backward
  int64_t limit_;
  DType reduce_dtype_;
  Stream stream_;  ///< gathers
  std::map<GroupKind, Links> links_;
  std::map<int64_t, Unit> units_;  ///< by block
  std::deque<Unit*> let_go_;       ///< oldest first: their memory is not returned yet
  /// Whole gradients under reduction, and when that is over.
  struct Reducing {
    std::vector<Tensor> gradients;
    Event done;
  };
  std::deque<Reducing> reducing_;
  bool fresh_ = true;  ///< no gather since parameters changed
};

}  // namespace moetwin
