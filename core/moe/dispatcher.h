#pragma once
// Moving tokens to their experts and back (semantics 5): three permutations, counts exchanged while
// tokens are gathered, one host sync, chunks whose exchange runs beside the experts of another.

#include <functional>
#include <string>
#include <vector>

#include "core/device/communicator.h"
#include "core/moe/experts.h"
#include "core/moe/router.h"
#include "core/topology/grid.h"

namespace moetwin {

/// Row counts of one layer and micro-batch on this rank, as read at the host sync.
struct DispatchCounts {
  std::vector<int64_t> routed;  ///< [E] assignments this rank's router made
  std::vector<int64_t> kept;    ///< [E] of them not dropped
  int64_t received_rows = 0;    ///< rows this rank's experts work on
};

/// One range of tokens on its way to the experts and back.
struct DispatchChunk {
  int64_t first_token = 0, tokens = 0;
  int64_t own_rows = 0;  ///< kept assignments of the range
  int64_t received_rows = 0;
  HostSizes send_rows, send_begin, recv_rows,
      recv_begin;  ///< per EP rank, from the range's first row on
  HostSizes
      back_begin;  ///< where rows of each EP rank return to: hidden row * own_rows + column's begin
  HostSizes to_experts,
      from_experts;       ///< regrouping by local expert; null where rows are in order already
  HostSizes expert_rows;  ///< per local expert
  Tensor expert_out;      ///< [own_rows,H] returned rows in this rank's permuted order
  ExpertsSaved saved;
};

struct DispatchSaved {
  Tensor position, source;
  std::vector<DispatchChunk> chunks;
  DispatchCounts counts;
};

class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  /// i64 (control): room for the router's counts (the first E+1) and what the dispatcher exchanges
  /// behind them.
  virtual Tensor count_buffer(Context& context) = 0;
  /// The part of it that the router writes: i64 [E+1].
  virtual Tensor router_counts(const Tensor& count_buffer) const = 0;
  /// Sends the tokens of x [T,H] through the experts; out [T,H] is their weighted combination.
  /// `beside` is launched while the first exchange is under way. Where `saved` holds the plan of an
  /// earlier forward (recompute), that plan is followed; count_buffer is then undefined.
  virtual Tensor forward(Context& context, const MicroBatch& batch, const Routing& routing,
                         const Tensor& count_buffer, const Tensor& x, Experts& experts,
                         const std::function<void()>& beside, DispatchSaved& saved) = 0;
  /// d_out [T,H] -> dx [T,H] (written) and d_weights real [T,k] (written).
  virtual Tensor backward(Context& context, const Routing& routing, const Tensor& d_out,
                          Experts& experts, const std::function<void()>& beside,
                          const Tensor& d_weights, DispatchSaved& saved) = 0;
};

struct DispatcherConfig {
  int64_t layer = 0;
  int64_t experts = 0, top_k = 1;
  MoeLayerConfig moe;  ///< capacity and drop policy
  int64_t chunks = 1;
};

/// All-to-all-v over the EP group; with one member nothing is exchanged.
class AllToAllDispatcher : public Dispatcher {
 public:
  AllToAllDispatcher(const DispatcherConfig& config, const Grid& grid, Communicator* ep);
  Tensor count_buffer(Context& context) override;
  Tensor router_counts(const Tensor& count_buffer) const override;
  Tensor forward(Context& context, const MicroBatch& batch, const Routing& routing,
                 const Tensor& count_buffer, const Tensor& x, Experts& experts,
                 const std::function<void()>& beside, DispatchSaved& saved) override;
  Tensor backward(Context& context, const Routing& routing, const Tensor& d_out, Experts& experts,
                  const std::function<void()>& beside, const Tensor& d_weights,
                  DispatchSaved& saved) override;

 private:
  /// Plans chunk sizes from what the host read: this rank's kept rows and those of every peer for
  /// its experts.
  void lay_out(const std::vector<int64_t>& host, int64_t tokens, DispatchSaved& saved) const;
  /// The one host sync.
  void read_counts(Context& context, const MicroBatch& batch, const Tensor& count_buffer,
                   int64_t tokens, DispatchSaved& saved) const;
  void exchange_counts(Context& context, const Tensor& count_buffer) const;
  /// Sends `rows` of the chunk to the experts' ranks; returns what arrived, by source rank. Leaves
  /// the event of arrival.
  Tensor send(Context& context, const DispatchChunk& chunk, const Tensor& rows, const char* purpose,
              Event& arrived) const;
  /// The reverse; returns hidden-sharding x own rows.
  Tensor send_back(Context& context, const DispatchChunk& chunk, const Tensor& rows,
                   const char* purpose, Event& arrived) const;
  Tensor regrouped(Context& context, const Tensor& rows, const HostSizes& segments) const;
  Tensor summed(Context& context, const Tensor& returned, int64_t own_rows) const;

  DispatcherConfig config_;
  Communicator* ep_;
  int64_t ranks_, columns_, hidden_rows_, local_experts_;
};

}  // namespace moetwin
