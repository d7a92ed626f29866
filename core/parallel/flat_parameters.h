#pragma once
// Parameters of one reduction group in flat buffers, cut into buckets in the order in which
// backward finishes them. A sharding strategy gives every member of the group one slice of every
// bucket: it keeps the optimizer state of that slice only (ZeRO-1), or gradients and weights too
// (FSDP). Then a bucket is one block and layers get at values and gradients through buffers that
// are attached for a while.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/nn/context.h"
#include "core/nn/parameter.h"
#include "core/parallel/host_state.h"
#include "core/scenario/sharding.h"

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
  int64_t state_begin = 0;       ///< of this rank's part in sharded buffers
  size_t first_place = 0, end_place = 0;
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
  /// Parameters with one reduction group and one value dtype. `ranks`, `rank`: size of the group
  /// that shares a bucket and place in it. `owner`: false where ranks outside of that group keep
  /// the same and one of them owns it. `on_host`: sharded weights and optimizer state are kept in
  /// host memory.
  FlatGroup(Context& context, std::vector<Parameter*> parameters, DType value_dtype,
            GroupKind reduction, int64_t ranks, int64_t rank, bool owner, Shard shard, bool on_host,
            int64_t bucket_bytes, bool momentum);

  GroupKind reduction() const { return reduction_; }
  bool sharded() const { return shard_ != Shard::nothing; }
  /// Values and gradients too.
  bool shards_everything() const { return shard_ == Shard::everything; }
  DType value_dtype() const { return value_dtype_; }
  const std::vector<FlatBucket>& buckets() const { return buckets_; }
  const std::vector<FlatPlace>& places() const { return places_; }
  /// All this rank keeps of them.
  const Tensor& gradients() const { return gradient_; }

  /// This rank's part of a bucket: [begin, begin + count) of the flat buffers.
  int64_t own_begin(const FlatBucket& bucket) const {
    return sharded() ? bucket.begin + rank_ * own_count(bucket) : bucket.begin;
  }
  int64_t own_count(const FlatBucket& bucket) const {
    return sharded() ? bucket.count / ranks_ : bucket.count;
  }
  /// Whether this rank adds its part of the gradients to the global norm: the lowest coordinate on
  /// every replicating axis.
  bool counts_in_norm() const { return owner_ && (sharded() || rank_ == 0); }
  /// Tied embeddings, which two stages hold in equal layout: gradients are summed over both.
  bool tied() const { return places_.front().parameter->pipeline == AxisUse::summed; }

  /// Elements [begin, begin + count): anywhere in a bucket, or in this rank's part of one where
  /// everything is sharded.
  Tensor gradient(int64_t begin, int64_t count) const {
    return gradient_.slice(shards_everything() ? kept_at(begin) : begin, {count});
  }
  /// The same of the values; of the weights where everything is sharded (and on the device).
  Tensor value(int64_t begin, int64_t count) const;
  /// What the optimizer updates for flat elements [begin, begin + count), which lie in this rank's
  /// part of the bucket.
  struct State {
    Tensor weight, m, v;
    bool separate_master = false;  ///< weight is wider than value, which must be cast from it
  };
  /// Where state is on the host, between `fetch` and `put_back` of the bucket.
  State state(const FlatBucket& bucket, int64_t begin, int64_t count) const;
  /// Brings the state of a bucket to the device, and takes it to the host again; the host waits.
  /// Nothing to do where state is on the device.
  void fetch(Context& context, const FlatBucket& bucket);
  void put_back(Context& context, const FlatBucket& bucket);
  /// Where everything is sharded: this rank's share of the values, from which to gather. Launched
  /// on `stream`; written to `own` where it must be converted or brought from the host.
  Tensor share(Context& context, const FlatBucket& bucket, const Tensor& own, Stream stream) const;
  /// Visits all this rank keeps, in an order that is the same in every run of a layout. What is
  /// launched on the compute stream during the visit may read and write the piece's tensors, which
  /// must not be kept; after writes, GradientReducer::weights_changed.
  void for_each_piece(Context& context, const std::function<void(const StatePiece&)>& visit);

  /// Where everything is sharded: what layers find as values or gradients of a bucket, [count];
  /// undefined: nothing.
  void attach_values(const FlatBucket& bucket, const Tensor& whole) const;
  void attach_gradients(const FlatBucket& bucket, const Tensor& whole) const;

  /// Draws and constants of every parameter.
  void initialise(Context& context);

 private:
  /// Place in sharded buffers of a flat element of this rank's part.
  int64_t kept_at(int64_t begin) const;
  DType value_dtype_;
  GroupKind reduction_;
  int64_t ranks_, rank_;
  bool owner_;
  Shard shard_;
  std::vector<FlatBucket> buckets_;
  std::vector<FlatPlace> places_;
  DType real_ = DType::f32;
  Tensor value_, gradient_, master_, m_, v_;
  std::unique_ptr<HostState> host_;      ///< instead of value_ (or master_), m_ and v_
  const FlatBucket* fetched_ = nullptr;  ///< whose state is on the device meanwhile
  State visiting_;
};

/// Sorts all parameters into groups; gives each its value and gradient.
std::vector<FlatGroup> make_flat_groups(Context& context, ParameterSet& parameters,
                                        const Grid& grid, const DistributedConfig& config,
                                        bool momentum);

}  // namespace moetwin
