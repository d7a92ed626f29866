#pragma once
// One rank of a modelled cluster without the others: what it launches is priced and takes its time
// at once, and its collectives begin when it has come, as if every member came with it. So the
// core's own program runs on it, without SimGrid, as often as wanted in a process.

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/sim/cost/framework.h"
#include "backends/sim/representative/collective_prices.h"
#include "backends/sim/representative/items.h"
#include "backends/sim/representative/product_overlap.h"
#include "core/device/backend.h"

namespace moetwin {

/// What of the other members' work the rank cannot know by itself.
class Peers {
 public:
  virtual ~Peers() = default;
  /// Rows from every member to every other in an exchange of which only this rank's part is known:
  /// [i * n + j].
  virtual std::vector<double> rows(const CollectiveCall& call, const Group& group) const = 0;
  /// Counts that the members of the group send to this rank, into call.recv, which has storage.
  virtual void fill(const CollectiveCall& call, const Group& group) const = 0;
};

struct SoloSettings {
  DType compute_dtype = DType::f32;
  KernelChoice kernels;
  /// Reference arithmetic of ops that count.
  std::function<Reference(const Op&)> references;
  double slowness = 1;  ///< factor on the time of kernels
  TensorParallelBeside tensor_parallel{};
  bool copies_gathered = false;  ///< as gathered_are_copied says of the scenario
  bool blocking_wait = false;    ///< the host waits for collectives on the compute stream
};

class SoloBackend : public Backend {
 public:
  SoloBackend(CollectivePrices& prices, const SoloSettings& settings, int64_t rank,
              const Peers* peers = nullptr);

  const DeviceProperties& properties() const override { return properties_; }
  bool supports(const Op& op) const override { return op.kernels != nullptr; }
  Block reserve(int64_t bytes) override { return {next_block_++, bytes, true}; }
  void release(const Block&) override {}
  std::shared_ptr<void> storage(const Block& block, int64_t offset, int64_t bytes,
                                MemoryClass memory_class) override;
  Stream stream(const char* name) override;
  void launch(const OpCall& call, Stream stream) override;
  Event record(Stream stream) override;
  void wait(Stream stream, Event event) override;
  void synchronize(Stream stream) override;
  void write(const Tensor& tensor, const void* host, Stream stream) override;
  void read(const Tensor& tensor, void* host, Stream stream) override;
  double now() override { return clocks_[kHostClock]; }
  void host_work(double seconds, Activity activity) override;
  void phase(Phase phase, const char* label) override;
  Profile take_profile(bool detailed) override;
  std::unique_ptr<Communicator> communicator(const Group& group, const std::string& name) override;
  [[noreturn]] void abort(const std::string& message) override;

  void collective(const Group& group, const std::string& name, const CollectiveCall& call,
                  Stream stream);
  /// Takes the compute stream as long as reading and writing `bytes`.
  void copy_out(int64_t bytes);

  Clocks& clocks() { return clocks_; }
  /// What is under way on a stream after `from` ends that much later, and what waits for it.
  void delay(size_t clock, double from, double seconds);
  /// Collectives of a stream that follow each other without a pause, until its clock.
  struct Busy {
    double start = 0, seconds = 0;
    PortUse use;
  };
  /// The latest such.
  const Busy& busy(size_t clock) const { return busy_[clock]; }
  /// Of an exchange in [start, start + seconds], what it loses to those of a stream.
  double lost_to(size_t clock, double start, double seconds, const PortUse& ports) const {
    const Busy& busy = busy_[clock];
    const double from = std::max(start, busy.start);
    return std::max(0.0, std::min(start + seconds, clocks_[clock]) - from) *
           ports.shared_with(busy.use);
  }
  /// What was done since the last cut, as a piece of a list. Events of earlier pieces are not
  /// waited for: what a piece waits for is in it.
  struct Piece {
    ItemList items;
    std::vector<Sent> sent;
  };
  Piece cut();
  /// Without, a piece has no items: for a program that is driven on and on.
  void keep_list(bool keep) { keeps_list_ = keep; }

 private:
  int8_t clock(Stream stream) const;
  void copy(const Tensor& tensor, const char* name, Stream stream);
  void add(Item item);
  void run(const OpCall& call) const;
  void note_use(size_t clock, double before, double start, const Item& item);

  CollectivePrices& prices_;
  const GpuProfile& gpu_;
  SoloSettings settings_;
  const Peers* peers_;
  const Corrections corrections_;
  DeviceProperties properties_;
  int64_t next_block_ = 0;
  int32_t streams_ = 0;
  Clocks clocks_{};
  std::array<Busy, kClocks> busy_{};
  Phase phase_ = Phase::other;
  KernelList kernels_;
  ProductOverlap overlap_;
  Piece piece_;
  bool keeps_list_ = true;
  int64_t first_event_ = 0, next_event_ = 0;  ///< number of the piece's first record
  struct Recorded {
    double time;
    int8_t clock;
  };
  std::vector<Recorded> events_;
};

}  // namespace moetwin
