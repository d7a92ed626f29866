#include "core/device/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/base/units.h"

namespace moetwin {

namespace {
constexpr int64_t kGrain = 512;
constexpr int64_t kSmall = 1 << 20;
constexpr int64_t kSmallBlock = 2 << 20;
constexpr int64_t kMedium = 10 << 20;
constexpr int64_t kMediumBlock = 20 << 20;
constexpr int64_t kRound = 2 << 20;

int64_t round_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }
}  // namespace

Buffer::~Buffer() {
  if (allocator && !released) allocator->give_back(*this);
}

Allocator::Allocator(Backend& device, bool poison) : device_(device), poison_(poison) {}

Allocator::~Allocator() {
  for (auto& [id, b] : blocks_) device_.release(b.block);
}

std::pmr::set<Allocator::FreePiece>& Allocator::free_pieces(int32_t stream, int pool) {
  return free_[{stream, pool}];
}

void Allocator::out_of_memory(int64_t bytes, MemoryClass memory_class, const char* name) const {
  const DeviceProperties& p = device_.properties();
  std::string classes;
  for (int c = 0; c < kMemoryClasses; ++c)
    if (use_.bytes[static_cast<size_t>(c)] > 0)
      classes += fmt::format("{}{} {}", classes.empty() ? "" : ", ",
                             memory_class_name(static_cast<MemoryClass>(c)),
                             format_bytes(static_cast<double>(use_.bytes[static_cast<size_t>(c)])));
  throw Error(
      ErrorClass::capacity,
      fmt::format(
          "out of memory on rank {} in step {}: {} for \"{}\" ({}) do not fit: {} of {} are "
          "reserved, {} in "
          "use ({}); {} over. Use a smaller micro-batch, more expert parallelism or ZeRO, or with "
          "numerics none memory.on_exceed: report",
          p.rank, step_, format_bytes(static_cast<double>(bytes)), name,
          memory_class_name(memory_class), format_bytes(static_cast<double>(use_.reserved)),
          format_bytes(static_cast<double>(p.memory_bytes)),
          format_bytes(static_cast<double>(use_.allocated)), classes.empty() ? "nothing" : classes,
          format_bytes(static_cast<double>(use_.reserved + bytes - p.memory_bytes))));
}

Tensor Allocator::allocate(const Shape& shape, DType dtype, MemoryClass memory_class,
                           const char* name, Stream stream) {
  for (int i = 0; i < shape.rank; ++i) require(shape[i] >= 0, "extents are not negative");
  const int64_t wanted = shape.elements() * dtype_size(dtype);
  const int64_t bytes = std::max<int64_t>(kGrain, round_up(wanted, kGrain));
  const int pool = bytes <= kSmall ? 0 : 1;
  // `control` has storage of its own kind, so it never shares a block with bulk data.
  const int lane = pool + (memory_class == MemoryClass::control ? 2 : 0);
  auto& free = free_pieces(stream.id, lane);
  auto it = free.lower_bound({bytes, -1, -1});
  if (it == free.end()) {
    const int64_t block_bytes = pool == 0          ? kSmallBlock
                                : bytes <= kMedium ? kMediumBlock
                                                   : round_up(bytes, kRound);
    Block block = device_.reserve(block_bytes);
    block.stream = stream.id;
    if (block.id < 0) out_of_memory(block_bytes, memory_class, name);
    BlockPieces pieces{block, lane, std::pmr::map<int64_t, Piece>(&nodes_)};
    pieces.pieces[0] = {block.bytes, true};
    blocks_.emplace(block.id, std::move(pieces));
    use_.reserved += block.bytes;
    use_.peak_reserved = std::max(use_.peak_reserved, use_.reserved);
    it = free.insert({block.bytes, block.id, 0}).first;
  }
  const FreePiece found = *it;
  free.erase(it);
  BlockPieces& in = blocks_.at(found.block);
  Piece& piece = in.pieces.at(found.offset);
  piece = {bytes, false};
  if (found.bytes > bytes) {
    in.pieces[found.offset + bytes] = {found.bytes - bytes, true};
    free.insert({found.bytes - bytes, found.block, found.offset + bytes});
  }
  auto buffer = std::allocate_shared<Buffer>(std::pmr::polymorphic_allocator<Buffer>(&nodes_));
  buffer->allocator = this;
  buffer->block = in.block;
  buffer->offset = found.offset;
  buffer->bytes = bytes;
  buffer->memory_class = memory_class;
  buffer->name = name;
  buffer->storage = device_.storage(in.block, found.offset, bytes, memory_class);
  if (poison_ && buffer->storage && in.block.on_host)
    std::memset(buffer->storage.get(), 0xff, static_cast<size_t>(bytes));
  const auto c = static_cast<size_t>(memory_class);
  use_.bytes[c] += bytes;
  use_.allocated += bytes;
  if (use_.allocated > use_.peak) {
    use_.peak = use_.allocated;
    use_.context = device_.properties().context_bytes;
    use_.communicators = device_.properties().communicator_bytes;
    use_.bytes_at_peak = use_.bytes;
  }
  return {shape, dtype, std::move(buffer), 0};
}

void Allocator::give_back(Buffer& buffer) {
  BlockPieces& in = blocks_.at(buffer.block.id);
  auto& free = free_pieces(in.block.stream, in.pool);
  auto it = in.pieces.find(buffer.offset);
  it->second.free = true;
  if (const auto next = std::next(it); next != in.pieces.end() && next->second.free) {
    free.erase({next->second.bytes, buffer.block.id, next->first});
    it->second.bytes += next->second.bytes;
    in.pieces.erase(next);
  }
  if (it != in.pieces.begin()) {
    if (const auto previous = std::prev(it); previous->second.free) {
      free.erase({previous->second.bytes, buffer.block.id, previous->first});
      previous->second.bytes += it->second.bytes;
      in.pieces.erase(it);
      it = previous;
    }
  }
  free.insert({it->second.bytes, buffer.block.id, it->first});
  use_.bytes[static_cast<size_t>(buffer.memory_class)] -= buffer.bytes;
  use_.allocated -= buffer.bytes;
  buffer.released = true;
}

void Allocator::release(Tensor& tensor) {
  if (tensor.buffer && !tensor.buffer->released) give_back(*tensor.buffer);
  tensor.buffer.reset();
}

void Allocator::reset_peak() {
  use_.peak = use_.allocated;
  use_.bytes_at_peak = use_.bytes;
  use_.peak_reserved = use_.reserved;
}

}  // namespace moetwin
