#pragma once
// Parameters of one reduction group in flat buffers, cut into buckets in the order in which
// backward finishes them. ZeRO-1 gives every member of the group one slice of every bucket: it
// keeps the optimizer state of that slice only.

#include <cstdint>
#include <functional>
#include <vector>

#include "core/nn/context.h"
#include "core/nn/parameter.h"

namespace moetwin {

/// A stretch of a bucket with one set of optimizer settings.
struct FlatSegment {
  ParameterKind kind = ParameterKind::dense;
  bool one_dimensional = false;
  int64_t begin = 0, count = 0;  ///< elements of the flat buffers
};

struct FlatBucket {
  int64_t begin = 0, count = 0;  ///< count is a multiple of the group's size
  int64_t lowest_block = 0;      ///< ready when the backward of this block is done
  int64_t state_begin = 0;       ///< of this rank's part in master, m and v
  std::vector<FlatSegment> segments;
};

/// Where a parameter's elements lie.
struct FlatPlace {
  Parameter* parameter = nullptr;
  int64_t begin = 0;
};

/// A run of elements of one parameter whose weight and optimizer state this rank keeps, whatever
/// the strategy.
struct StatePiece {
  Parameter* parameter = nullptr;
  /// Elements of the parameter's local tensor, row-major; element i of the piece is element
  /// parameter->global_index(first + i) of the whole parameter.
  int64_t first = 0, count = 0;
  /// [count], real_dtype: the fp32 master where weights are narrower. m and v are undefined without
  /// moments.
  Tensor weight, m, v;
  /// Exactly one rank of the world owns an element: the one that writes it to a checkpoint. Reading
  /// one fills the pieces of every rank.
  bool owner = false;
};

class FlatGroup {
 public:
  /// Parameters with one reduction group and one value dtype. `ranks`, `rank`: size of that group
  /// and place in it.
  FlatGroup(Context& context, std::vector<Parameter*> parameters, DType value_dtype,
            GroupKind reduction, int64_t ranks, int64_t rank, bool sharded, int64_t bucket_bytes,
            bool momentum);

  GroupKind reduction() const { return reduction_; }
  bool sharded() const { return sharded_; }
  const std::vector<FlatBucket>& buckets() const { return buckets_; }
  const std::vector<FlatPlace>& places() const { return places_; }
  const Tensor& gradients() const { return gradient_; }

  /// This rank's part of a bucket: [begin, begin + count) of the flat buffers.
  int64_t own_begin(const FlatBucket& bucket) const {
    return sharded_ ? bucket.begin + rank_ * own_count(bucket) : bucket.begin;
  }
  int64_t own_count(const FlatBucket& bucket) const {
    return sharded_ ? bucket.count / ranks_ : bucket.count;
  }
  /// Whether this rank adds its part of the gradients to the global norm: the lowest coordinate on
  /// every replicating axis.
  bool counts_in_norm() const { return sharded_ || rank_ == 0; }

  Tensor gradient(int64_t begin, int64_t count) const { return gradient_.slice(begin, {count}); }
  Tensor value(int64_t begin, int64_t count) const { return value_.slice(begin, {count}); }
  /// What the optimizer updates for flat elements [begin, begin + count), which lie in this rank's
  /// part of the bucket.
  struct State {
    Tensor weight, m, v;
    bool separate_master = false;  ///< weight is wider than value, which must be cast from it
  };
  State state(const FlatBucket& bucket, int64_t begin, int64_t count) const;
  /// Visits all this rank keeps, in an order that is the same in every run of a layout. What is
  /// launched on the compute stream during the visit may read and write the piece's tensors, which
  /// must not be kept; after writes, GradientReducer::weights_changed.
  void for_each_piece(Context& context, const std::function<void(const StatePiece&)>& visit);

  /// Draws and constants of every parameter.
  void initialise(Context& context);

 private:
  GroupKind reduction_;
  int64_t ranks_, rank_;
  bool sharded_;
  std::vector<FlatBucket> buckets_;
  std::vector<FlatPlace> places_;
  Tensor value_, gradient_, master_, m_, v_;
};

/// Sorts all parameters into groups; gives each its value and gradient.
std::vector<FlatGroup> make_flat_groups(Context& context, ParameterSet& parameters,
                                        const Grid& grid, const DistributedConfig& config,
                                        bool momentum);

}  // namespace moetwin
