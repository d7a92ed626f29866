// Machines that run the reference arithmetic of one instruction set at the moment of the launch.

#include <cstdlib>
#include <cstring>
#include <map>

#include "core/base/error.h"
#include "core/ops/isa.h"
#include "tests/conformance/machine.h"

namespace moetwin::conformance {
namespace {

class InlineBackend : public Backend {
 public:
  explicit InlineBackend(Isa isa) : isa_(isa) {
    properties_.name = std::string("inline ") + isa_name(isa);
    properties_.memory_bytes = int64_t{1} << 32;
  }

  const DeviceProperties& properties() const override { return properties_; }
  bool supports(const Op&) const override { return true; }

  Block reserve(int64_t bytes) override {
    Block block{next_++, bytes, true};
    blocks_[block.id] = std::shared_ptr<char>(
        static_cast<char*>(std::aligned_alloc(512, static_cast<size_t>(bytes))),
        [](char* p) { std::free(p); });
    return block;
  }
  void release(const Block& block) override { blocks_.erase(block.id); }
  std::shared_ptr<void> storage(const Block& block, int64_t offset, int64_t, MemoryClass) override {
    const std::shared_ptr<char>& base = blocks_.at(block.id);
    return std::shared_ptr<void>(base, base.get() + offset);
  }

  Stream stream(const char*) override { return {0}; }
  void launch(const OpCall& call, Stream) override {
    ReferenceCall r;
    r.op = call.op;
    for (int i = 0; i < call.count; ++i)
      r.tensors[static_cast<size_t>(i)] = {call[i].data(), call[i].shape, call[i].dtype};
    r.attributes = call.attributes;
    r.sizes = call.sizes;
    reference_of(*call.op, isa_)(r);
  }
  Event record(Stream) override { return {0}; }
  void wait(Stream, Event) override {}
  void synchronize(Stream) override {}
  void write(const Tensor& t, const void* host, Stream) override {
    std::memcpy(t.data(), host, static_cast<size_t>(t.bytes()));
  }
  void read(const Tensor& t, void* host, Stream) override {
    std::memcpy(host, t.data(), static_cast<size_t>(t.bytes()));
  }

  double now() override { return 0; }
  void host_work(double, Activity) override {}
  void phase(Phase, const char*) override {}
  Profile take_profile(bool) override { return {}; }
  std::unique_ptr<Communicator> communicator(const Group&, const std::string&) override {
    throw Error(ErrorClass::internal, "the inline machine is one rank");
  }
  [[noreturn]] void abort(const std::string& message) override {
    throw Error(ErrorClass::internal, message);
  }

 private:
  Isa isa_;
  DeviceProperties properties_;
  int64_t next_ = 0;
  std::map<int64_t, std::shared_ptr<char>> blocks_;
};

}  // namespace

std::vector<std::unique_ptr<Machine>> machines_under_test() {
  std::vector<std::unique_ptr<Machine>> machines;
  for (Isa isa : {Isa::x86_64, Isa::x86_64_v3, Isa::x86_64_v4})
    if (isa_supported(isa))
      machines.push_back(std::make_unique<Machine>(
          isa_name(isa), std::make_unique<InlineBackend>(isa),
          std::vector<DType>{DType::f32, DType::bf16, DType::f16, DType::f64}));
  return machines;
}

}  // namespace moetwin::conformance
