#pragma once
// A device on which nothing takes time: it runs a rank's program for its calls alone and writes
// them to a tape. What has storage without numerics (expert counts) is computed and exchanged
// between scribes at once, in the order of the program, which respects every stream and event.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/sim/alike/alike.h"
#include "backends/sim/alike/tape.h"
#include "backends/sim/collective/arithmetic.h"
#include "backends/sim/runtime/simulation.h"
#include "core/device/backend.h"
#include "core/record/run_sink.h"

namespace moetwin {

/// Where scribes meet that stand for the members of a group.
class ScribeExchange {
 public:
  /// `block` waits for `wake` of the same leader.
  ScribeExchange(const AlikeRanks& alike, std::function<void(int64_t leader)> block,
                 std::function<void(int64_t leader)> wake)
      : alike_(alike), block_(std::move(block)), wake_(std::move(wake)) {}
  /// One scribe's side of a call whose tensors have storage; returns when the data has moved. The
  /// members of a group that a scribe stands for all send what it sends.
  void exchange(int64_t leader, const Group& group, const std::string& name,
                const CollectiveCall& call);

 private:
  struct Meeting {
    std::vector<MemberData> data;
    int64_t members = 0;  ///< that are spoken for
    bool done = false;
    std::vector<int64_t> leaders;
  };
  const AlikeRanks& alike_;
  std::function<void(int64_t)> block_, wake_;
  std::map<std::string, std::shared_ptr<Meeting>> meetings_;
};

class Scribe : public Backend, public RunSink {
 public:
  /// `step_closed` is called when a step's segment is on the tape, before the program goes on;
  /// `sink`: whose wants_detail the program is told; null: none.
  Scribe(Simulation& simulation, int64_t leader, ScribeExchange& exchange, Tape& tape,
         const RunSink* sink, std::function<void()> step_closed);
  /// The program has returned.
  void finish();

  const DeviceProperties& properties() const override { return properties_; }
  bool supports(const Op& op) const override { return op.kernels != nullptr; }
  Block reserve(int64_t bytes) override;
  void release(const Block& block) override { reserved_ -= block.bytes; }
  std::shared_ptr<void> storage(const Block& block, int64_t offset, int64_t bytes,
                                MemoryClass memory_class) override;
  Stream stream(const char* name) override;
  void launch(const OpCall& call, Stream stream) override;
  Event record(Stream stream) override;
  void wait(Stream stream, Event event) override;
  void synchronize(Stream stream) override;
  void write(const Tensor& tensor, const void* host, Stream stream) override;
  void read(const Tensor& tensor, void* host, Stream stream) override;
  double now() override;  ///< the number of this reading
  void host_work(double seconds, Activity activity) override;
  void phase(Phase phase, const char* label) override;
  Profile take_profile(bool detailed) override;
  std::unique_ptr<Communicator> communicator(const Group& group, const std::string& name) override;
  [[noreturn]] void abort(const std::string& message) override;

  bool wants_detail(int64_t step) const override;
  void add(RankStep step) override;
  void add_validation(int64_t rank, int64_t step, double ce_sum, int64_t tokens) override;

  /// One member's side of a collective, from its communicator.
  void collective(int32_t communicator, const Group& group, const std::string& name,
                  const CollectiveCall& call, Stream stream);

 private:
  TapeEntry& put(TapeEntry::Kind kind, Stream stream = {0}, size_t index = 0);

  Simulation& simulation_;
  const GpuProfile& gpu_;
  ScribeExchange& exchange_;
  Tape& tape_;
  const RunSink* sink_;
  std::function<void()> step_closed_;
  DeviceProperties properties_;
  LaunchPricer pricer_;
  TapeSegment segment_;
  Phase phase_ = Phase::other;
  int32_t streams_ = 0, communicators_ = 0;
  int64_t events_ = 0, readings_ = 0, reserved_ = 0, next_block_ = 0;
  mutable int64_t asked_step_ = 0;  ///< whose detail the program asked about last
};

}  // namespace moetwin
