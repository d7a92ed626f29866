#pragma once
// The access check: wraps a backend and sees every use of device memory and every ordering of
// streams. Two uses of the same bytes, one of them a write, that nothing orders, and a use of
// memory that was given back, are errors that name both ops and the tensor. So a missing wait is
// found without a GPU and without luck; the reuse of memory by another stream is seen because bytes
// are followed, not tensors.

#include <unordered_map>
#include <vector>

#include "core/device/access_log.h"
#include "core/device/backend.h"

namespace moetwin {

class CheckedBackend : public Backend {
 public:
  explicit CheckedBackend(Backend& inner) : inner_(inner) {}

  const DeviceProperties& properties() const override { return inner_.properties(); }
  bool supports(const Op& op) const override { return inner_.supports(op); }
  Block reserve(int64_t bytes) override { return inner_.reserve(bytes); }
  void release(const Block& block) override;
  std::shared_ptr<void> storage(const Block& block, int64_t offset, int64_t bytes,
                                MemoryClass memory_class) override {
    return inner_.storage(block, offset, bytes, memory_class);
  }
  Stream stream(const char* name) override;
  void launch(const OpCall& call, Stream stream) override;
  Event record(Stream stream) override;
  void wait(Stream stream, Event event) override;
  void synchronize(Stream stream) override;
  void write(const Tensor& tensor, const void* host, Stream stream) override;
  void read(const Tensor& tensor, void* host, Stream stream) override;
  double now() override { return inner_.now(); }
  void host_work(double seconds, Activity activity) override {
    inner_.host_work(seconds, activity);
  }
  void phase(Phase phase, const char* label) override { inner_.phase(phase, label); }
  Profile take_profile(bool detailed) override { return inner_.take_profile(detailed); }
  std::unique_ptr<Communicator> communicator(const Group& group, const std::string& name) override;
  [[noreturn]] void abort(const std::string& message) override;

 private:
  friend class CheckedCommunicator;
  struct Use {
    const Tensor* tensor;
    ByteRange range;
    bool writes;
  };
  /// `first` and `count` are elements of the tensor; count -1: all of it.
  void use(const Tensor& tensor, bool writes, int64_t first = 0, int64_t count = -1);
  /// Checks and notes the uses collected so far as those of one op; throws Error(internal).
  void check(const char* op, Stream stream);
  VectorClock& clock(Stream stream);
  [[noreturn]] void conflict(const char* op, Stream stream, const Use& use,
                             const MemoryAccess& earlier) const;

  Backend& inner_;
  AccessLog log_;
  std::vector<VectorClock> clocks_;  ///< by stream
  VectorClock host_;                 ///< what the host has waited for
  std::vector<const char*> names_;   ///< of streams
  std::unordered_map<int64_t, VectorClock> events_;
  size_t events_kept_ = 1024;  ///< tidied up beyond this many
  std::vector<Use> uses_;
};

/// A factory for machines that wrap every rank's backend.
std::unique_ptr<Backend> checked(Backend& inner);

}  // namespace moetwin
