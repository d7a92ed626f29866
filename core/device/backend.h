#pragma once
// THE boundary: a backend is one GPU, real or modelled. The core allocates tensors, launches ops on
// streams, records events and calls collectives; nothing above this line knows which machine it is.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/device/communicator.h"
#include "core/device/op.h"
#include "core/device/profile.h"
#include "core/device/stream.h"
#include "core/device/tensor.h"

namespace moetwin {

struct DeviceProperties {
  std::string name;  ///< "A100-SXM4-80GB (modelled)"
  int64_t memory_bytes =
      0;  ///< what may be reserved; exceeding it makes reserve() return an invalid block
  int64_t rank = 0, world = 1;
  int64_t node = 0, gpus_per_node = 1;
  bool numerics = true;             ///< bulk tensors have storage
  KernelChoice kernels;             ///< what ops are run as, or priced as
  double peak_flop_per_second = 0;  ///< dense peak of the scenario's compute dtype
  std::string peak_source;          ///< where that figure is from
  /// Device memory in no tensor, where it is known. Both are beside memory_bytes' blocks: that is
  /// what is left after the context, and reserve() keeps room for the communicators made so far.
  int64_t context_bytes = 0;       ///< context, kernels and workspaces of libraries and framework
  int64_t communicator_bytes = 0;  ///< buffers of the collective library
};

/// Label of a phase in which a program goes on after giving way to another micro-batch.
inline constexpr const char* kResumed = "resumed";

class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual const DeviceProperties& properties() const = 0;
  virtual bool supports(const Op& op) const = 0;

  /// A large block of device memory; id -1 when there is not that much left. Used by Allocator
  /// only.
  virtual Block reserve(int64_t bytes) = 0;
  virtual void release(const Block& block) = 0;
  /// Where the bytes [offset, offset + bytes) of a block live; null: this machine keeps none for
  /// this class.
  virtual std::shared_ptr<void> storage(const Block& block, int64_t offset, int64_t bytes,
                                        MemoryClass memory_class) = 0;

  virtual Stream stream(const char* name) = 0;
  virtual void launch(const OpCall& call, Stream stream) = 0;
  virtual Event record(Stream stream) = 0;
  virtual void wait(Stream stream, Event event) = 0;
  /// The host waits until everything launched on the stream is done.
  virtual void synchronize(Stream stream) = 0;

  /// Copies to the device after the work on the stream; `host` may be reused at once; null with
  /// numerics off (time only).
  virtual void write(const Tensor& tensor, const void* host, Stream stream) = 0;
  /// Copies to the host after the work on the stream and waits for it. The tensor must have
  /// storage, unless `host` is null (numerics off: time only).
  virtual void read(const Tensor& tensor, void* host, Stream stream) = 0;

  /// Seconds of this rank's clock; the host has not waited for anything.
  virtual double now() = 0;
  /// The host thread is busy for that long (data loading, logging).
  virtual void host_work(double seconds, Activity activity) = 0;
  /// What the launches that follow belong to; `label` is a string literal for timelines: empty to
  /// go back to the phase before, kResumed to go on in a pass that gave way to another.
  virtual void phase(Phase phase, const char* label) = 0;
  /// What was done since the last call, all of it waited for; `detailed` rules what is kept from
  /// now on.
  virtual Profile take_profile(bool detailed) = 0;

  /// Every rank of the world calls this for every group, in one order; null for non-members is
  /// never asked.
  virtual std::unique_ptr<Communicator> communicator(const Group& group,
                                                     const std::string& name) = 0;
  /// Ends the whole job with this message: kills or unblocks every rank. Does not return.
  [[noreturn]] virtual void abort(const std::string& message) = 0;
};

/// The machine as a whole: runs one program per rank and waits for all. The first error of any rank
/// ends all of them and is thrown again here.
class Cluster {
 public:
  virtual ~Cluster() = default;
  virtual int64_t world() const = 0;
  /// Of rank 0's device, known before run().
  virtual DeviceProperties device() const = 0;
  /// One line for reports: what is modelled or found, with settings that change results.
  virtual std::string description() const = 0;
  virtual void run(const std::function<void(Backend&)>& program) = 0;
};

/// Sets the phase and restores the one before.
class PhaseScope {
 public:
  PhaseScope(Backend& device, Phase& current, Phase phase, const char* label)
      : device_(device), current_(current), before_(current) {
    current_ = phase;
    device_.phase(phase, label);
  }
  ~PhaseScope() {
    current_ = before_;
    device_.phase(before_, "");
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Backend& device_;
  Phase& current_;
  Phase before_;
};

}  // namespace moetwin
