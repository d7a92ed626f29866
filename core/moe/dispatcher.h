#pragma once
// Moving tokens to their experts and back (semantics 5): three permutations, counts exchanged while
// tokens are gathered, one host sync, chunks whose exchange runs beside the experts of another.

#include <functional>
#include <string>
#include <vector>

#include "core/device/communicator.h"
#include "core/moe/experts.h"
#include "core/moe/rebalancing/rebalancer.h"
#include "core/moe/router.h"
#include "core/ops/dispatch.h"
#include "core/topology/grid.h"

namespace moetwin {

/// Row counts of one layer and micro-batch on this rank, as read at the host sync.
struct DispatchCounts {
  std::vector<int64_t> routed;  ///< [E] assignments this rank's router made
  std::vector<int64_t> kept;    ///< [E] of them not dropped
  int64_t received_rows = 0;    ///< rows this rank's experts work on
};

/// One range of this rank's slice of tokens on its way to the experts and back. With split experts
/// (expert-TP) what each rank of that group got is gathered on all of them, and their partial
/// results are summed where the rows came from.
struct DispatchChunk {
  int64_t first_token = 0, tokens = 0;  ///< in the slice
  int64_t own_rows = 0;                 ///< kept assignments of the range
  int64_t exchanged_rows = 0;           ///< that come to this rank over EP
  int64_t received_rows = 0;            ///< that its experts work on: of all its expert-TP group
  HostSizes send_rows, send_begin, recv_rows,
      recv_begin;  ///< per EP rank, from the range's first row on
  HostSizes
      back_begin;  ///< where rows of each EP rank return to: hidden row * own_rows + column's begin
  /// Over expert-TP: this rank's rows to everyone, everyone's rows in group order; and back.
  HostSizes own_to_all, own_begin, gathered_rows, gathered_begin, parts_begin;
  HostSizes to_experts,
      from_experts;       ///< regrouping by local expert; null where rows are in order already
  HostSizes expert_rows;  ///< per local expert
  HostSizes guest_rows;   ///< per guest, whose rows come behind; null where there is none
  /// Between the rows' own order and that in which they leave; null where these are the same.
  HostSizes to_ranks, from_ranks;
  Tensor expert_out;  ///< [own_rows,H] returned rows in this rank's permuted order
  ExpertsSaved saved;
};

struct DispatchSaved {
  Tensor position, source;  ///< of all T tokens
  std::vector<DispatchChunk> chunks;
  DispatchCounts counts;
  Rebalanced rebalanced;
};

class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  /// i64 (control): room for the router's counts (the first E+1) and what the dispatcher exchanges
  /// behind them.
  virtual Tensor count_buffer(Context& context) = 0;
  /// The part of it that the router writes: i64 [E+1].
  virtual Tensor router_counts(const Tensor& count_buffer) const = 0;
  /// Sends the tokens of x [N,H], this rank's slice of the T that `routing` is about, through the
  /// experts; out [N,H] is their weighted combination. `beside` is launched while the first
  /// exchange is under way. Where `saved` holds the plan of an earlier forward (recompute), that
  /// plan is followed; count_buffer is then undefined.
  virtual Tensor forward(Context& context, const MicroBatch& batch, const Routing& routing,
                         const Tensor& count_buffer, const Tensor& x, Experts& experts,
                         const std::function<void()>& beside, DispatchSaved& saved) = 0;
  /// d_out [N,H] -> dx [N,H] (written) and d_weights real [T,k] (the slice's rows written).
  virtual Tensor backward(Context& context, const Routing& routing, const Tensor& d_out,
                          Experts& experts, const std::function<void()>& beside,
                          const Tensor& d_weights, DispatchSaved& saved) = 0;
  /// All gradients of the experts that the backward has started on their way are there.
  virtual void settle(Context&, DispatchSaved&) {}
  /// Null where experts stay and work at home.
  virtual Rebalancer* rebalancer() { return nullptr; }
};

struct DispatcherConfig {
  int64_t layer = 0;
  int64_t experts = 0, top_k = 1;
  MoeLayerConfig moe;  ///< capacity and drop policy
  int64_t chunks = 1;  ///< of a slice
  /// The TP group's tokens are cut into equal slices, one for each rank.
  int64_t slices = 1, slice = 0;
  RebalancingSetup rebalancing;
  int64_t micro_batches = 1;  ///< of a step of this rank
};

/// All-to-all-v over the EP group; with one member nothing is exchanged. `expert_tp`: null where
/// experts are whole.
class AllToAllDispatcher : public Dispatcher {
 public:
  AllToAllDispatcher(const DispatcherConfig& config, const Grid& grid, Communicator* ep,
                     Communicator* expert_tp = nullptr);
  Tensor count_buffer(Context& context) override;
  Tensor router_counts(const Tensor& count_buffer) const override;
  Tensor forward(Context& context, const MicroBatch& batch, const Routing& routing,
                 const Tensor& count_buffer, const Tensor& x, Experts& experts,
                 const std::function<void()>& beside, DispatchSaved& saved) override;
  Tensor backward(Context& context, const Routing& routing, const Tensor& d_out, Experts& experts,
                  const std::function<void()>& beside, const Tensor& d_weights,
                  DispatchSaved& saved) override;
  void settle(Context& context, DispatchSaved& saved) override;
  Rebalancer* rebalancer() override { return rebalancer_.get(); }

 private:
  /// Rows under way on the dispatch stream. What only that stream touches is kept until compute has
  /// waited for it.
  struct InFlight {
    Tensor rows;
    std::vector<Tensor> between;
    Event arrived;
  };
  /// The slice's part of what is known of all tokens.
  struct Slice {
    Tensor weights, position, source;
    RangeAttr range;  ///< without a range yet
  };
  Slice slice_of(const Routing& routing, const DispatchSaved& saved, int64_t tokens) const;
  bool exchanges() const { return ep_ || expert_tp_; }
  int64_t plan_chunks() const { return config_.slices * config_.chunks; }
  /// Plans chunk sizes from what the host read: this rank's kept rows and those of every peer for
  /// its experts. `tokens`: of the slice.
  void lay_out(const std::vector<int64_t>& host, const MicroBatch& batch, int64_t tokens,
               DispatchSaved& saved) const;
  void lay_out_at_home(const int64_t* kept, const int64_t* received, int64_t chunk_index,
                       DispatchChunk& chunk) const;
  void lay_out_by_plan(const GroupCounts& counts, int64_t chunk_index, const ExpertPlan& plan,
                       DispatchChunk& chunk) const;
  /// `slots`: places for experts on this rank; rows_of(source, slot).
  void lay_out_arrivals(int64_t slots, const std::function<int64_t(int64_t, int64_t)>& rows_of,
                        DispatchChunk& chunk) const;
  /// By place, from the gathered counts of all ranks.
  GroupCounts group_counts(const std::vector<int64_t>& host) const;
  /// The one host sync.
  void read_counts(Context& context, const MicroBatch& batch, const Tensor& count_buffer,
                   int64_t tokens, DispatchSaved& saved) const;
  void exchange_counts(Context& context, const Tensor& count_buffer) const;
  /// Starts `rows` of the chunk on their way to the experts' ranks: what arrives is in order of
  /// expert-TP rank, EP rank, expert.
  InFlight send(Context& context, const DispatchChunk& chunk, const Tensor& rows,
                const char* purpose) const;
  /// The reverse; what arrives has hidden-sharding x own rows.
  InFlight send_back(Context& context, const DispatchChunk& chunk, const Tensor& rows,
                     const char* purpose) const;
  Tensor regrouped(Context& context, const Tensor& rows, const HostSizes& segments) const;
  Tensor summed(Context& context, const Tensor& returned, int64_t own_rows) const;

  DispatcherConfig config_;
  Communicator* ep_;
  Communicator* expert_tp_;
  int64_t ranks_, splits_, columns_, hidden_rows_, local_experts_;
  std::vector<int64_t> slice_of_;  ///< by expert-TP rank and EP rank: whose slice that rank sends
  std::unique_ptr<Rebalancer> rebalancer_;  ///< null: experts work at home
};

}  // namespace moetwin
