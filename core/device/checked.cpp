#include "core/device/checked.h"

#include <fmt/format.h>

#include <exception>

#include "core/base/error.h"

namespace moetwin {

/// Tells the backend what a collective reads and writes on this rank.
class CheckedCommunicator : public Communicator {
 public:
  CheckedCommunicator(CheckedBackend& backend, std::unique_ptr<Communicator> inner)
      : Communicator(inner->group(), inner->rank(), inner->name()),
        backend_(backend),
        inner_(std::move(inner)) {}

 protected:
  void start(const CollectiveCall& call, Stream stream) override {
    if (call.kind == CollectiveKind::all_to_all_v) {
      use_rows(call.send, call.send_rows, call.send_begin, false);
      use_rows(call.recv, call.recv_rows, call.recv_begin, true);
    } else if (call.kind == CollectiveKind::broadcast) {
      backend_.use(call.recv, call.peer != rank());
    } else {
      backend_.use(call.send, false);
      backend_.use(call.recv, true);
    }
    backend_.check(collective_name(call.kind), stream);
    inner_->start(call, stream);
  }

 private:
  // Each member's rows alone: chunks of one tensor may be under way in other streams.
  void use_rows(const Tensor& tensor, const HostSizes& rows, const HostSizes& begin, bool writes) {
    int64_t row = 1;
    for (int d = 1; d < tensor.shape.rank; ++d) row *= tensor.shape[d];
    for (size_t i = 0; i < rows->size(); ++i)
      if ((*rows)[i] > 0) backend_.use(tensor, writes, (*begin)[i] * row, (*rows)[i] * row);
  }
  CheckedBackend& backend_;
  std::unique_ptr<Communicator> inner_;
};

std::unique_ptr<Backend> checked(Backend& inner) { return std::make_unique<CheckedBackend>(inner); }

void CheckedBackend::release(const Block& block) {
  log_.forget(block.id);
  inner_.release(block);
}

Stream CheckedBackend::stream(const char* name) {
  const Stream made = inner_.stream(name);
  const auto index = static_cast<size_t>(made.id);
  if (index >= names_.size()) names_.resize(index + 1, "");
  names_[index] = name;
  return made;
}

VectorClock& CheckedBackend::clock(Stream stream) {
  const auto index = static_cast<size_t>(stream.id);
  if (index >= clocks_.size()) clocks_.resize(index + 1);
  return clocks_[index];
}

void CheckedBackend::use(const Tensor& tensor, bool writes, int64_t first, int64_t count) {
  if (!tensor.defined()) return;
  const int64_t size = dtype_size(tensor.dtype);
  const int64_t begin = tensor.buffer->offset + (tensor.offset + first) * size;
  const int64_t bytes = (count < 0 ? tensor.elements() : count) * size;
  uses_.push_back({&tensor, {tensor.buffer->block.id, begin, begin + bytes}, writes});
}

void CheckedBackend::conflict(const char* op, Stream stream, const Use& use,
                              const MemoryAccess& earlier) const {
  throw Error(
      ErrorClass::internal,
      fmt::format("access check: {} on stream \"{}\" of rank {} {} \"{}\" {}, which {} on stream "
                  "\"{}\" {} as \"{}\", and nothing orders them: a wait is missing",
                  op, names_[static_cast<size_t>(stream.id)], properties().rank,
                  use.writes ? "writes" : "reads", use.tensor->name(), use.tensor->shape.str(),
                  earlier.op, names_[static_cast<size_t>(earlier.stream)],
                  earlier.writes ? "writes" : "reads", earlier.tensor));
}

void CheckedBackend::check(const char* op, Stream stream) {
  const std::vector<Use> uses = std::move(uses_);
  uses_.clear();
  for (const Use& u : uses)
    if (u.tensor->buffer->released)
      throw Error(
          ErrorClass::internal,
          fmt::format("access check: {} on stream \"{}\" of rank {} {} \"{}\" {}, whose "
                      "memory was given back after its last use in {}",
                      op, names_[static_cast<size_t>(stream.id)], properties().rank,
                      u.writes ? "writes" : "reads", u.tensor->name(), u.tensor->shape.str(),
                      u.tensor->buffer->last_op[0] ? u.tensor->buffer->last_op : "no op"));
  VectorClock& now = clock(stream);
  now.join(host_);  // what the host has waited for was over before this was launched
  for (const Use& u : uses)
    if (const MemoryAccess* earlier = log_.conflict(u.range, u.writes, now))
      conflict(op, stream, u, *earlier);
  const int64_t count = now.advance(stream.id);
  for (const bool writes : {false, true})  // an op's own reads come before its writes
    for (const Use& u : uses) {
      if (u.writes != writes) continue;
      log_.note(u.range, {stream.id, count, op, u.tensor->name(), writes});
      u.tensor->buffer->last_op = op;
    }
}

void CheckedBackend::launch(const OpCall& call, Stream stream) {
  for (size_t i = 0; i < static_cast<size_t>(call.count); ++i)
    use(call.tensors[i], call.op->operands[i].access != Access::read);
  check(call.op->name, stream);
  inner_.launch(call, stream);
}

Event CheckedBackend::record(Stream stream) {
  const Event event = inner_.record(stream);
  events_[event.id] = clock(stream);
  if (events_.size() > events_kept_) {
    // Every launch is ordered behind what the host has waited for: such events say nothing more.
    std::erase_if(events_, [&](const auto& e) { return e.second.within(host_); });
    events_kept_ = 2 * events_.size() + 1024;
  }
  return event;
}

void CheckedBackend::wait(Stream stream, Event event) {
  const auto found = events_.find(event.id);
  if (found != events_.end()) clock(stream).join(found->second);
  inner_.wait(stream, event);
}

void CheckedBackend::synchronize(Stream stream) {
  inner_.synchronize(stream);
  host_.join(clock(stream));
}

void CheckedBackend::write(const Tensor& tensor, const void* host, Stream stream) {
  use(tensor, true);
  check("write", stream);
  inner_.write(tensor, host, stream);
}

void CheckedBackend::read(const Tensor& tensor, void* host, Stream stream) {
  use(tensor, false);
  check("read", stream);
  inner_.read(tensor, host, stream);
  host_.join(clock(stream));
}

void CheckedBackend::abort(const std::string& message) {
  inner_.abort(message);
  std::terminate();  // not reached: the compiler does not see that a virtual function stays away
}

std::unique_ptr<Communicator> CheckedBackend::communicator(const Group& group,
                                                           const std::string& name) {
  return std::make_unique<CheckedCommunicator>(*this, inner_.communicator(group, name));
}

}  // namespace moetwin
