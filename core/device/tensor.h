#pragma once
// A tensor is shape, dtype and a piece of a buffer; core never dereferences device memory (see
// to_host in backend.h).

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

namespace moetwin {

enum class DType : uint8_t { f32, bf16, f16, f64, i32, i64 };
int64_t dtype_size(DType dtype);
const char* dtype_name(DType dtype);
/// "fp32" | "bf16" | "fp16" | "fp64", as in scenarios.
DType parse_dtype(const std::string& name);
/// What sums, statistics and router scores of tensors of `dtype` are kept in: f64 for f64, else
/// f32.
constexpr DType real_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// At most four extents, row-major, 64-bit.
struct Shape {
  std::array<int64_t, 4> dims{};
  int rank = 0;
  Shape() = default;
  Shape(std::initializer_list<int64_t> extents);
  int64_t operator[](int i) const { return dims[static_cast<size_t>(i)]; }
  int64_t elements() const;
  bool operator==(const Shape&) const = default;
  std::string str() const;
};

/// What memory is for: the classes of the memory report (semantics 7). `control` (counts, splits,
/// flags) always has storage, with numerics off too.
enum class MemoryClass : uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  communication,
  router,
  workspace,
  control
};
inline constexpr int kMemoryClasses = 8;
const char* memory_class_name(MemoryClass memory_class);

class Allocator;

/// A large block of device memory, from Backend::reserve.
struct Block {
  int64_t id = -1;
  int64_t bytes = 0;
  bool on_host = true;  ///< storage is host memory
  int32_t stream = -1;  ///< the one whose work orders reuse of its pieces; set by the allocator
};

/// One allocation. Returned to its allocator when the last tensor on it is gone, or earlier by
/// Allocator::release. The host may drop it while launched work still uses it: reuse on the same
/// stream is ordered behind that work, reuse from another stream is not (the access check finds
/// it).
class Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Allocator* allocator = nullptr;
  Block block;
  int64_t offset = 0;  ///< bytes from the start of the block
  int64_t bytes = 0;
  MemoryClass memory_class = MemoryClass::activations;
  const char* name = "";     ///< a string literal: for messages
  const char* last_op = "";  ///< kept by the access check
  bool released = false;
  std::shared_ptr<void>
      storage;  ///< where the bytes are, for the machine's own use; null: no storage
};

struct Tensor {
  Shape shape;
  DType dtype = DType::f32;
  std::shared_ptr<Buffer> buffer;
  int64_t offset = 0;  ///< elements from the start of the buffer

  bool defined() const { return buffer != nullptr; }
  int64_t elements() const { return shape.elements(); }
  int64_t bytes() const { return elements() * dtype_size(dtype); }
  bool has_storage() const { return buffer && buffer->storage; }
  /// Address of the first element; only backends may follow it.
  void* data() const {
    return has_storage() ? static_cast<char*>(buffer->storage.get()) + offset * dtype_size(dtype)
                         : nullptr;
  }
  const char* name() const { return buffer ? buffer->name : "(none)"; }
  /// `rows` leading entries from `first` on: a view.
  Tensor rows(int64_t first, int64_t count) const;
  /// The same elements under another shape.
  Tensor reshaped(const Shape& new_shape) const;
  /// `new_shape` elements starting at element `first` of this tensor: a view.
  Tensor slice(int64_t first, const Shape& new_shape) const;
};

}  // namespace moetwin
