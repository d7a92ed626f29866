#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "core/base/error.h"
#include "core/device/allocator.h"

using namespace moetwin;

namespace {

/// Only memory: blocks of a device of `capacity` bytes, each buffer with host storage.
class MemoryOnly : public Backend {
 public:
  explicit MemoryOnly(int64_t capacity) { properties_.memory_bytes = capacity; }
  const DeviceProperties& properties() const override { return properties_; }
  Block reserve(int64_t bytes) override {
    if (reserved + bytes > properties_.memory_bytes) return {};
    reserved += bytes;
    ++blocks;
    return {next_++, bytes, true};
  }
  void release(const Block& block) override { reserved -= block.bytes; }
  std::shared_ptr<void> storage(const Block&, int64_t, int64_t bytes, MemoryClass) override {
    return {std::malloc(static_cast<size_t>(bytes)), std::free};
  }
  bool supports(const Op&) const override { return false; }
  Stream stream(const char*) override { return {0}; }
  void launch(const OpCall&, Stream) override {}
  Event record(Stream) override { return {0}; }
  void wait(Stream, Event) override {}
  void synchronize(Stream) override {}
  void write(const Tensor&, const void*, Stream) override {}
  void read(const Tensor&, void*, Stream) override {}
  double now() override { return 0; }
  void host_work(double, Activity) override {}
  void phase(Phase, const char*) override {}
  Profile take_profile(bool) override { return {}; }
  std::unique_ptr<Communicator> communicator(const Group&, const std::string&) override {
    return nullptr;
  }
  [[noreturn]] void abort(const std::string& message) override {
    throw Error(ErrorClass::fault, message);
  }

  int64_t reserved = 0, blocks = 0;

 private:
  DeviceProperties properties_;
  int64_t next_ = 0;
};

constexpr int64_t kMiB = 1 << 20;

}  // namespace

TEST_CASE("pieces are multiples of 512 bytes and small ones share a 2 MiB block") {
  MemoryOnly device(100 * kMiB);
  Allocator memory(device, false);
  const Tensor a = memory.allocate({1}, DType::f32, MemoryClass::activations, "a");
  const Tensor b = memory.allocate({129}, DType::f32, MemoryClass::activations, "b");  // 516 bytes
  CHECK(memory.use().allocated == 512 + 1024);
  CHECK(device.blocks == 1);
  CHECK(memory.use().reserved == 2 * kMiB);
  CHECK(a.buffer->offset + 512 <= b.buffer->offset);
}

TEST_CASE("freed memory is used again and neighbours grow together") {
  MemoryOnly device(100 * kMiB);
  Allocator memory(device, false);
  Tensor a = memory.allocate({kMiB / 4}, DType::f32, MemoryClass::activations, "a");
  Tensor b = memory.allocate({kMiB / 4}, DType::f32, MemoryClass::activations, "b");
  CHECK(device.blocks == 1);  // two of 1 MiB fill one 2 MiB block
  a = {};
  b = {};
  CHECK(memory.use().allocated == 0);
  const Tensor c = memory.allocate({kMiB / 4}, DType::f32, MemoryClass::activations, "c");
  const Tensor d = memory.allocate({kMiB / 4}, DType::f32, MemoryClass::activations, "d");
  CHECK(device.blocks == 1);
  CHECK(memory.use().peak == 2 * kMiB);
}

TEST_CASE("streams and control tensors do not share freed memory") {
  MemoryOnly device(100 * kMiB);
  Allocator memory(device, false);
  { const Tensor a = memory.allocate({8}, DType::f32, MemoryClass::activations, "a", {0}); }
  const Tensor b = memory.allocate({8}, DType::f32, MemoryClass::activations, "b", {1});
  CHECK(device.blocks == 2);
  const Tensor c = memory.allocate({8}, DType::i64, MemoryClass::control, "c", {0});
  CHECK(device.blocks == 3);
}

TEST_CASE("the peak is of the sum, with the classes of that moment") {
  MemoryOnly device(100 * kMiB);
  Allocator memory(device, false);
  const Tensor weights =
      memory.allocate({kMiB}, DType::f32, MemoryClass::parameters, "weights");  // 4 MiB
  {
    const Tensor x = memory.allocate({kMiB}, DType::f64, MemoryClass::activations, "x");  // 8 MiB
    CHECK(memory.use().allocated == 12 * kMiB);
  }
  const Tensor g = memory.allocate({kMiB}, DType::f32, MemoryClass::gradients, "g");  // 4 MiB
  const MemoryUse& use = memory.use();
  CHECK(use.peak == 12 * kMiB);
  CHECK(use.bytes_at_peak[static_cast<size_t>(MemoryClass::activations)] == 8 * kMiB);
  CHECK(use.bytes_at_peak[static_cast<size_t>(MemoryClass::gradients)] == 0);
  CHECK(use.bytes[static_cast<size_t>(MemoryClass::gradients)] == 4 * kMiB);
  memory.reset_peak();
  CHECK(memory.use().peak == 8 * kMiB);
}

TEST_CASE("out of memory names step, class and bytes, and leaves everything as it was") {
  MemoryOnly device(10 * kMiB);
  Allocator memory(device, false);
  memory.set_step(7);
  const Tensor small = memory.allocate({1}, DType::f32, MemoryClass::gradients, "g");
  try {
    memory.allocate({8 * kMiB}, DType::bf16, MemoryClass::parameters, "weights");  // 16 MiB into 10
    FAIL("16 MiB fit into 10");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::capacity);
    const std::string what = error.what();
    for (const char* part : {"step 7", "weights", "parameters", "16.00 MiB", "8.00 MiB over"}) {
      INFO(what);
      CHECK(what.find(part) != std::string::npos);
    }
  }
  CHECK(memory.use().allocated == 512);
}

TEST_CASE("poison fills new buffers with NaN") {
  MemoryOnly device(10 * kMiB);
  Allocator memory(device, true);
  const Tensor a = memory.allocate({3}, DType::f32, MemoryClass::activations, "a");
  for (int i = 0; i < 3; ++i) CHECK(std::isnan(static_cast<float*>(a.data())[i]));
}

TEST_CASE("views address rows and slices in 64 bits", "[P068][P070][P071]") {
  Tensor t;
  t.buffer = std::make_shared<Buffer>();
  t.dtype = DType::bf16;
  t.shape = {37450 * 8, 7168};  // 2,147,532,800 elements, above 2^31
  CHECK(t.elements() == 2147532800);
  CHECK(t.rows(37449 * 8, 8).offset == 2147475456);
  t.shape = {262145 * 2, 4096};
  CHECK(t.elements() == (int64_t{1} << 31) + 8192);
  t.shape = {1079839, 2048};
  CHECK(t.elements() == 2211510272);
}
