#include "tests/cuda_on_host/ops/compare.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>

#include "core/ops/isa.h"
#include "tests/cuda_on_host/kernels/block.h"

namespace moetwin::cuda_on_host {
namespace {

uint16_t bits_of(double x, DType dtype) {
  const float f = static_cast<float>(x);
  uint32_t wide;
  std::memcpy(&wide, &f, sizeof wide);
  if (dtype == DType::bf16) return static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
  const _Float16 half = static_cast<_Float16>(f);
  uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}
double value_at(const char* data, int64_t i, DType dtype) {
  const auto read = [&]<class T>(T x) {
    std::memcpy(&x, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return x;
  };
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(read(float{}));
    case DType::bf16: {
      const uint32_t wide = uint32_t{read(uint16_t{})} << 16;
      float f;
      std::memcpy(&f, &wide, sizeof f);
      return static_cast<double>(f);
    }
    case DType::f16:
      return static_cast<double>(static_cast<float>(read(_Float16{})));
    case DType::i32:
      return static_cast<double>(read(int32_t{}));
    case DType::i64:
      return static_cast<double>(read(int64_t{}));
    default:
      return read(double{});
  }
}
void set_at(char* data, int64_t i, DType dtype, double x) {
  const auto write = [&](auto v) {
    std::memcpy(data + i * static_cast<int64_t>(sizeof v), &v, sizeof v);
  };
  if (dtype == DType::f32) return write(static_cast<float>(x));
  if (dtype == DType::i32) return write(static_cast<int32_t>(x));
  if (dtype == DType::i64) return write(static_cast<int64_t>(x));
  if (dtype == DType::f64) return write(x);
  write(bits_of(x, dtype));
}
double half_ulp(DType dtype) {
  return std::ldexp(1.0, dtype == DType::bf16 ? -8 : dtype == DType::f16 ? -11 : -24);
}

Tensor make(const Shape& shape, DType dtype, int64_t before = 0) {
  const int64_t elements = shape.elements() + before;
  auto buffer = std::make_shared<Buffer>();
  buffer->name = "input";
  buffer->bytes = std::max<int64_t>(elements * dtype_size(dtype), 1);
  buffer->storage =
      std::shared_ptr<void>(std::calloc(1, static_cast<size_t>(buffer->bytes)), std::free);
  Tensor t;
  t.shape = shape;
  t.dtype = dtype;
  t.buffer = std::move(buffer);
  t.offset = before;
  return t;
}

/// The buffers of a call on the device, filled from the host's.
class OnDevice {
 public:
  OnDevice(OpBackend& device, const OpCall& call) : device_(device), call_(call) {
    for (int i = 0; i < call.count; ++i)
      if (Tensor& t = call_.tensors[static_cast<size_t>(i)]; t.defined()) {
        std::shared_ptr<Buffer>& mine = buffers_[t.buffer.get()];
        if (!mine) {
          mine = std::make_shared<Buffer>();
          mine->name = "on the device";
          mine->bytes = t.buffer->bytes;
          mine->block = device.reserve(mine->bytes);
          REQUIRE(mine->block.id >= 0);
          mine->storage = device.storage(mine->block, 0, mine->bytes, MemoryClass::activations);
          const Tensor all = bytes_of(mine);
          device.write(all, t.buffer->storage.get(), {0});
        }
        t.buffer = mine;
      }
  }
  ~OnDevice() {
    for (auto& [host, mine] : buffers_) device_.release(mine->block);
  }
  const OpCall& call() const { return call_; }
  std::vector<char> read(const Tensor& t) {
    std::vector<char> bytes(static_cast<size_t>(t.bytes()) + 1);
    device_.read(t, bytes.data(), {0});
    return bytes;
  }

 private:
  /// The buffer as 16-bit words, or one i32 where it is smaller than that.
  static Tensor bytes_of(const std::shared_ptr<Buffer>& buffer) {
    Tensor t;
    t.buffer = buffer;
    t.dtype = DType::bf16;
    t.shape = {buffer->bytes / 2};
    return t;
  }
  OpBackend& device_;
  OpCall call_;
  std::map<Buffer*, std::shared_ptr<Buffer>> buffers_;
};

std::vector<std::vector<char>> run_on_device(const OpCall& call, uint64_t shuffle, bool tf32) {
  OpBackend device(tf32);
  OnDevice on(device, call);
  emulated::set_shuffle(shuffle);
  device.launch(on.call(), {0});
  emulated::set_shuffle(0);
  std::vector<std::vector<char>> results;
  for (int i = 0; i < call.count; ++i)
    results.push_back(call[i].defined() ? on.read(on.call()[i]) : std::vector<char>{});
  return results;
}

std::vector<std::vector<char>> run_reference(const OpCall& call) {
  std::map<Buffer*, std::vector<char>> copies;
  ReferenceCall reference;
  reference.op = call.op;
  reference.attributes = call.attributes;
  reference.sizes = call.sizes;
  for (int i = 0; i < call.count; ++i) {
    const Tensor& t = call[i];
    if (!t.defined()) continue;
    std::vector<char>& copy = copies[t.buffer.get()];
    const char* from = static_cast<const char*>(t.buffer->storage.get());
    if (copy.empty()) copy.assign(from, from + t.buffer->bytes);
    reference.tensors[static_cast<size_t>(i)] = {copy.data() + t.offset * dtype_size(t.dtype),
                                                 t.shape, t.dtype};
  }
  reference_of(*call.op, Isa::x86_64)(reference);
  std::vector<std::vector<char>> results;
  for (int i = 0; i < call.count; ++i) {
    const char* data = static_cast<const char*>(reference[i].data);
    results.push_back(call[i].defined() ? std::vector<char>(data, data + call[i].bytes())
                                        : std::vector<char>{});
  }
  return results;
}

void compare_operand(const char* name, const Tensor& t, const char* got, const char* want,
                     const Allowed& allowed) {
  const int64_t n = t.elements();
  double largest = 0;
  for (int64_t i = 0; i < n; ++i)
    if (const double w = value_at(want, i, t.dtype); std::isfinite(w))
      largest = std::max(largest, std::abs(w));
  const bool whole = t.dtype == DType::i32 || t.dtype == DType::i64;
  const double unit = whole ? 0 : std::max(half_ulp(t.dtype), half_ulp(allowed.at_least));
  for (int64_t i = 0; i < n; ++i) {
    const double g = value_at(got, i, t.dtype), w = value_at(want, i, t.dtype);
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    const double most = unit * (allowed.rel * std::abs(w) + allowed.abs * largest);
    if (!(std::abs(g - w) <= most)) {
      FAIL_CHECK("operand " << name << " " << t.shape.str() << " " << dtype_name(t.dtype)
                            << " element " << i << ": " << g << ", the reference says " << w
                            << ", difference " << g - w << ", allowed " << most);
      return;
    }
  }
  CHECK(true);
}

}  // namespace

Tensor Inputs::real(const Shape& shape, DType dtype, double low, double high) {
  const Tensor t = make(shape, dtype);
  std::uniform_real_distribution<double> draw(low, high);
  for (int64_t i = 0; i < shape.elements(); ++i)
    set_at(static_cast<char*>(t.data()), i, dtype, draw(random_));
  return t;
}
Tensor Inputs::whole(const Shape& shape, DType dtype, int64_t low, int64_t high) {
  const Tensor t = make(shape, dtype);
  for (int64_t i = 0; i < shape.elements(); ++i)
    set_at(static_cast<char*>(t.data()), i, dtype, static_cast<double>(number(low, high)));
  return t;
}
Tensor Inputs::list(const Shape& shape, DType dtype, const std::vector<double>& values) {
  REQUIRE(shape.elements() == static_cast<int64_t>(values.size()));
  const Tensor t = make(shape, dtype);
  for (size_t i = 0; i < values.size(); ++i)
    set_at(static_cast<char*>(t.data()), static_cast<int64_t>(i), dtype, values[i]);
  return t;
}
Tensor Inputs::output(const Shape& shape, DType dtype) {
  return list(shape, dtype, std::vector<double>(static_cast<size_t>(shape.elements()), 7));
}
Tensor Inputs::shifted(const Tensor& t, int64_t elements) {
  const Tensor moved = make(t.shape, t.dtype, elements);
  std::memcpy(moved.data(), t.data(), static_cast<size_t>(t.bytes()));
  return moved;
}

void compare(const OpCall& call, Allowed allowed, bool tf32) {
  INFO("op " << call.op->name);
  const auto want = run_reference(call);
  const auto got = run_on_device(call, 0, tf32);
  for (int i = 0; i < call.count; ++i)
    if (call[i].defined() && call.op->operands[static_cast<size_t>(i)].access != Access::read)
      compare_operand(call.op->operands[static_cast<size_t>(i)].name, call[i],
                      got[static_cast<size_t>(i)].data(), want[static_cast<size_t>(i)].data(),
                      allowed);
  for (uint64_t shuffle : {1, 2}) {
    INFO("shuffled with seed " << shuffle);
    CHECK(run_on_device(call, shuffle, tf32) == got);
  }
}

void each_real(const std::function<void(DType)>& body) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    INFO("dtype " << dtype_name(dtype));
    body(dtype);
  }
}

}  // namespace moetwin::cuda_on_host
