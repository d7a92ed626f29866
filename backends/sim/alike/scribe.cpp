#include "backends/sim/alike/scribe.h"

#include <fmt/format.h>

#include <cstring>

#include "backends/sim/runtime/sim_backend.h"
#include "core/base/error.h"
#include "core/device/reference_call.h"

namespace moetwin {
namespace {

class ScribeCommunicator : public Communicator {
 public:
  ScribeCommunicator(const Group& group, int64_t index, const std::string& name, int32_t number,
                     Scribe& scribe)
      : Communicator(group, index, name), number_(number), scribe_(scribe) {}

 protected:
  void start(const CollectiveCall& call, Stream stream) override {
    scribe_.collective(number_, group(), name(), call, stream);
  }

 private:
  int32_t number_;
  Scribe& scribe_;
};

/// What a tape keeps of a tensor.
Tensor described(const Tensor& tensor) {
  Tensor t;
  t.shape = tensor.shape;
  t.dtype = tensor.dtype;
  return t;
}

}  // namespace

void ScribeExchange::exchange(int64_t leader, const Group& group, const std::string& name,
                              const CollectiveCall& call) {
  std::string key = fmt::format("{} {} {} {} {} {} {}", name, group.base, group.n0, group.stride0,
                                group.n1, group.stride1, call.sequence);
  std::shared_ptr<Meeting>& found = meetings_[key];
  if (!found) found = std::make_shared<Meeting>();
  const std::shared_ptr<Meeting> meeting = found;
  meeting->data.resize(static_cast<size_t>(group.size()));
  MemberData mine;
  mine.send = HeldTensor(call.send);
  mine.recv = HeldTensor(call.recv);
  mine.send_rows = call.send_rows;
  mine.send_begin = call.send_begin;
  mine.recv_rows = call.recv_rows;
  mine.recv_begin = call.recv_begin;
  int64_t members = 0;
  for (int64_t m = 0; m < group.size(); ++m) {
    if (alike_.leader(group.member(m)) != leader) continue;
    meeting->data[static_cast<size_t>(m)] = mine;
    ++members;
  }
  require(members == 1 || call.kind == CollectiveKind::all_reduce,
          "ranks with one program get the same from a collective");
  meeting->leaders.push_back(leader);
  meeting->members += members;
  if (meeting->members < group.size()) {
    while (!meeting->done) block_(leader);
    return;
  }
  move_data(call.kind, call.reduce, call.kind == CollectiveKind::broadcast ? call.peer : 0,
            meeting->data);
  meeting->done = true;
  meetings_.erase(key);
  for (const int64_t other : meeting->leaders)
    if (other != leader) wake_(other);
}

Scribe::Scribe(Simulation& simulation, int64_t leader, ScribeExchange& exchange, Tape& tape,
               const RunSink* sink, std::function<void()> step_closed)
    : simulation_(simulation),
      gpu_(simulation.machine().profile().gpu),
      exchange_(exchange),
      tape_(tape),
      sink_(sink),
      step_closed_(std::move(step_closed)),
      properties_(sim_properties(simulation.machine(), simulation.settings(), leader)),
      pricer_(gpu_, simulation.settings().kernels) {}

void Scribe::finish() {
  tape_.close(std::move(segment_));
  segment_ = {};
  tape_.end();
}

TapeEntry& Scribe::put(TapeEntry::Kind kind, Stream stream, size_t index) {
  TapeEntry& entry = segment_.entries.emplace_back();
  entry.kind = kind;
  entry.stream = static_cast<int8_t>(stream.id);
  entry.index = static_cast<int32_t>(index);
  return entry;
}

Block Scribe::reserve(int64_t bytes) {
  if (reserved_ + bytes + properties_.communicator_bytes > properties_.memory_bytes &&
      !simulation_.settings().memory_report)
    return {-1, 0, true};
  reserved_ += bytes;
  return {next_block_++, bytes, true};
}

std::shared_ptr<void> Scribe::storage(const Block&, int64_t, int64_t bytes,
                                      MemoryClass memory_class) {
  return host_storage(false, bytes, memory_class);
}

Stream Scribe::stream(const char* name) {
  put(TapeEntry::Kind::stream, {0}, segment_.names.size());
  segment_.names.push_back(name);
  return {streams_++};
}

void Scribe::launch(const OpCall& call, Stream stream) {
  put(TapeEntry::Kind::launch, stream, segment_.launches.size());
  TapeSegment::Launch launch;
  launch.first = static_cast<uint32_t>(segment_.kernels.size());
  launch.priced = pricer_.price(call, phase_, segment_.kernels);
  launch.count = static_cast<uint32_t>(segment_.kernels.size()) - launch.first;
  segment_.launches.push_back(launch);
  if (!writes_storage(call)) return;
  const Reference reference = simulation_.reference(*call.op);
  require(reference != nullptr, "an op that writes counts has reference arithmetic");
  reference(reference_call(call));
}

Event Scribe::record(Stream stream) {
  put(TapeEntry::Kind::record, stream);
  return {events_++};
}

void Scribe::wait(Stream stream, Event event) {
  put(TapeEntry::Kind::wait, stream, static_cast<size_t>(event.id));
}

void Scribe::synchronize(Stream stream) { put(TapeEntry::Kind::synchronize, stream); }

void Scribe::write(const Tensor& tensor, const void* host, Stream stream) {
  put(TapeEntry::Kind::write, stream).bytes = tensor.bytes();
  if (host && tensor.has_storage() && tensor.bytes() > 0)
    std::memcpy(tensor.data(), host, static_cast<size_t>(tensor.bytes()));
}

void Scribe::read(const Tensor& tensor, void* host, Stream stream) {
  require(!host || tensor.has_storage(), "only what has storage is read to the host");
  put(TapeEntry::Kind::read, stream).bytes = tensor.bytes();
  if (host && tensor.bytes() > 0)
    std::memcpy(host, tensor.data(), static_cast<size_t>(tensor.bytes()));
}

double Scribe::now() {
  put(TapeEntry::Kind::now);
  return static_cast<double>(++readings_);
}

void Scribe::host_work(double seconds, Activity activity) {
  TapeEntry& entry = put(TapeEntry::Kind::host_work);
  entry.seconds = seconds;
  entry.activity = activity;
}

void Scribe::phase(Phase phase, const char*) {
  put(TapeEntry::Kind::phase).phase = phase;
  phase_ = phase;
}

Profile Scribe::take_profile(bool) {
  put(TapeEntry::Kind::take_profile, {0}, static_cast<size_t>(asked_step_));
  return {};
}

std::unique_ptr<Communicator> Scribe::communicator(const Group& group, const std::string& name) {
  const int64_t index = group.index_of(properties_.rank);
  require(index >= 0, "a rank asks only for groups that it is in");
  properties_.communicator_bytes += communicator_bytes(gpu_, group);
  put(TapeEntry::Kind::communicator, {0}, segment_.groups.size());
  segment_.groups.push_back({group, name});
  return std::make_unique<ScribeCommunicator>(group, index, name, communicators_++, *this);
}

void Scribe::abort(const std::string& message) { throw Error(ErrorClass::fault, message); }

bool Scribe::wants_detail(int64_t step) const {
  asked_step_ = step;
  return sink_ && sink_->wants_detail(step);
}

void Scribe::add(RankStep step) {
  put(TapeEntry::Kind::add, {0}, segment_.steps.size());
  step.profile = {};
  segment_.steps.push_back(std::move(step));
  tape_.close(std::move(segment_));
  segment_ = {};
  step_closed_();
}

void Scribe::add_validation(int64_t, int64_t, double, int64_t) {
  throw Error(ErrorClass::internal, "internal error: ranks without numerics have no validation");
}

void Scribe::collective(int32_t communicator, const Group& group, const std::string& name,
                        const CollectiveCall& call, Stream stream) {
  put(TapeEntry::Kind::collective, stream, segment_.collectives.size());
  TapeSegment::Collective kept{communicator, call};
  kept.call.send = described(call.send);
  kept.call.recv = described(call.recv);
  segment_.collectives.push_back(std::move(kept));
  if (call.send.has_storage() || call.recv.has_storage())
    exchange_.exchange(properties_.rank, group, name, call);
}

}  // namespace moetwin
