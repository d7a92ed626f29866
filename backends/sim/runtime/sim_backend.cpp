#include "backends/sim/runtime/sim_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backends/sim/cost/beside.h"
#include "backends/sim/cost/framework.h"
#include "backends/sim/cost/roofline.h"
#include "backends/sim/runtime/sim_communicator.h"
#include "core/base/error.h"
#include "core/device/bytes_sent.h"
#include "core/device/reference_call.h"

namespace moetwin {

int64_t communicator_bytes(const GpuProfile& gpu, const Group& group) {
  return group.size() > 1 ? static_cast<int64_t>(gpu.communicator.value) : 0;
}

DeviceProperties sim_properties(const Machine& machine, const Simulation::Settings& settings,
                                int64_t rank) {
  const GpuProfile& gpu = machine.profile().gpu;
  DeviceProperties p;
  p.name = gpu.name + " (modelled)";
  p.context_bytes =
      static_cast<int64_t>(gpu.context.value) + framework_costs(settings.kernels.of).memory_bytes;
  p.memory_bytes = static_cast<int64_t>(gpu.memory.value) - p.context_bytes;
  p.rank = rank;
  p.world = machine.world();
  p.node = machine.node_of(rank);
  p.gpus_per_node = machine.profile().gpus_per_node;
  p.numerics = settings.numerics;
  p.kernels = settings.kernels;
  p.peak_flop_per_second = peak(gpu, KernelKind::gemm, settings.compute_dtype).value;
  const auto& sources = machine.profile().sources;
  const auto source =
      sources.find(std::string("gpu.matmul_flop_per_second.") + dtype_name(settings.compute_dtype));
  if (source != sources.end()) p.peak_source = source->second;
  return p;
}

SimBackend::SimBackend(Simulation& simulation, int64_t rank)
    : simulation_(simulation),
      gpu_(simulation.machine().profile().gpu),
      properties_(sim_properties(simulation.machine(), simulation.settings(), rank)),
      pricer_(gpu_, simulation.settings().kernels),
      beside_products_(simulation.settings().tensor_parallel) {
  const auto& slow = simulation.machine().profile().slow_ranks;
  if (const auto found = slow.find(rank); found != slow.end()) slowness_ = found->second;
  rate_changes_ = simulation.machine().changes_of_gpu(rank);
  const FrameworkCosts costs = framework_costs(simulation.settings().kernels.of);
  const Seconds launch = gpu_.launch_overhead_seconds;
  kernel_host_seconds_ = std::max(launch, costs.kernel_seconds).value;
  backward_host_seconds_ = std::max(launch, costs.backward_kernel_seconds).value;
  collective_host_seconds_ = std::max(launch, costs.collective_seconds).value;
  if (simulation.settings().stages > 1)
    pass_host_seconds_ = simulation.settings().stage_pass_seconds;
  passes_wait_ = costs.passes_wait;
}

std::shared_ptr<void> host_storage(bool numerics, int64_t bytes, MemoryClass memory_class) {
  if (!numerics && memory_class != MemoryClass::control) return nullptr;
  // Memory of its own for every buffer: work that is still to be done keeps it although the
  // modelled memory is in use for something else already.
  constexpr int64_t kAlign = 64;
  void* memory =
      std::aligned_alloc(kAlign, static_cast<size_t>((bytes + kAlign - 1) / kAlign * kAlign));
  if (!memory) throw std::bad_alloc();
  return std::shared_ptr<void>(memory, std::free);
}

bool writes_storage(const OpCall& call) {
  for (size_t i = 0; i < call.op->operands.size(); ++i)
    if (call.op->operands[i].access != Access::read && call.tensors[i].has_storage()) return true;
  return false;
}

bool SimBackend::supports(const Op& op) const {
  return op.kernels != nullptr &&
         (!simulation_.settings().numerics || simulation_.reference(op) != nullptr);
}

Block SimBackend::reserve(int64_t bytes) {
  if (reserved_ + bytes + properties_.communicator_bytes > properties_.memory_bytes &&
      !simulation_.settings().memory_report)
    return {-1, 0, true};
  reserved_ += bytes;
  return {next_block_++, bytes, true};
}

void SimBackend::release(const Block& block) { reserved_ -= block.bytes; }

std::shared_ptr<void> SimBackend::storage(const Block&, int64_t, int64_t bytes,
                                          MemoryClass memory_class) {
  return host_storage(simulation_.settings().numerics, bytes, memory_class);
}

Stream SimBackend::stream(const char* name) {
  streams_.emplace_back();
  streams_.back().name = name;
  return {static_cast<int32_t>(streams_.size()) - 1};
}

StreamQueue& SimBackend::queue(Stream stream) {
  require(stream.id >= 0 && stream.id < static_cast<int32_t>(streams_.size()),
          "a stream of this device");
  return streams_[static_cast<size_t>(stream.id)];
}

void SimBackend::launch(const OpCall& call, Stream stream) {
  begin_pass();
  queue(stream);
  make_room(stream.id);
  kernels_.clear();
  PricedLaunch priced = pricer_.price(call, phase_, kernels_);
  priced.kernels = kernels_;
  const QueueItem item = begin(priced);
  if (runs(call)) add_task(call, stream.id);
  push(stream.id, item);
}

void SimBackend::launch(const PricedLaunch& priced, Stream stream) {
  begin_pass();
  queue(stream);
  make_room(stream.id);
  push(stream.id, begin(priced));
}

double SimBackend::correction(const QueueItem& item) const {
  const Corrections& corrections = simulation_.corrections();
  return corrections.empty() ? 1
                             : corrections.factor(item.name, "", static_cast<double>(item.bytes));
}

bool SimBackend::runs(const OpCall& call) const {
  return simulation_.settings().numerics || writes_storage(call);
}

void SimBackend::push(int32_t stream, const QueueItem& item) {
  StreamQueue& q = streams_[static_cast<size_t>(stream)];
  if (item.kind == QueueItem::Kind::work || item.kind == QueueItem::Kind::collective) ++q.launched;
  if (q.pending.empty() && item.kind == QueueItem::Kind::work) {
    resolve(q, stream, item);
    return;
  }
  q.pending.push_back(item);
  if (q.pending.size() == 1) advance(stream);
}

BesideProducts::Way SimBackend::way_of(int32_t stream, const Collective& c, Phase phase) const {
  // Compute is the first stream that a program asks for.
  return stream == 0 ? beside_products_.way_of(c.kind, c.purpose, phase)
                     : BesideProducts::Way::none;
}

void SimBackend::resolve(StreamQueue& q, int32_t stream, const QueueItem& item) {
  double seconds = item.seconds;
  if (item.gemm > 0 && stream == 0) seconds -= beside_products_.product(item.gemm);
  double end = std::max(q.end + seconds, item.host_bound);
  if (!rate_changes_.empty()) {
    const double start = std::max(q.end, item.launched), slowness = slowness_at(start);
    end = start + (end - start) * slowness;
    seconds *= slowness;
  }
  end += q.slowed;
  if (gpu_.communication_multiprocessors > 0 && item.activity == Activity::compute && seconds > 0) {
    q.busy.forget(in_flight_ > 0 ? std::min(host_, oldest_in_flight_) : host_);
    q.busy.add(end - seconds - q.slowed, end, item.products);
    q.phase = item.phase;
  }
  q.slowed = 0;
  if (item.seconds > 0 || (detailed_ && item.member > 0)) {
    Interval interval;
    interval.start = std::max(q.end, item.launched);
    interval.end = end;
    interval.activity = item.activity;
    interval.phase = item.phase;
    interval.stream = stream;
    interval.name = item.name;
    interval.bytes = item.bytes;
    interval.order = item.order;
    q.log.add(interval, detailed_);
  }
  ended(q, end);
}

double SimBackend::slowness_at(double time) const {
  const auto after =
      std::upper_bound(rate_changes_.begin(), rate_changes_.end(), time,
                       [](double t, const RateChange& change) { return t < change.time; });
  return after == rate_changes_.begin() ? 1 : 1 / std::prev(after)->share;
}

void SimBackend::slow_down(int32_t stream, const Collective& c, size_t member) {
  --in_flight_;
  const double seconds = c.end - c.start;
  if (gpu_.communication_multiprocessors == 0 || seconds <= 0) return;
  const bool pair = is_pair(c.kind);
  const Beside more = beside(gpu_, pair, c.plan.sent[member], seconds);
  for (size_t s = 0; s < streams_.size(); ++s) {
    StreamQueue& q = streams_[s];
    if (static_cast<int32_t>(s) == stream) continue;
    const double lost = q.busy.lost(c.start, c.end, more);
    if (lost <= 0) continue;
    // Behind a collective that has begun to wait for its members it shows in the work after it.
    if (!q.pending.empty() && q.pending.front().kind == QueueItem::Kind::collective) {
      q.slowed += lost;
      continue;
    }
    Interval interval;
    interval.start = q.end;
    interval.end = q.end + lost;
    interval.phase = q.phase;
    interval.stream = static_cast<int32_t>(s);
    interval.name = kSlowedName;
    interval.order = order_;
    q.log.add(interval, detailed_);
    q.end += lost;
  }
}

void SimBackend::ended(StreamQueue& q, double end) {
  q.end = end;
  if (q.ends.empty()) q.ends.resize(kRunAhead);
  q.ends[static_cast<size_t>(q.resolved++ % kRunAhead)] = end;
}

void SimBackend::advance(int32_t stream) {
  StreamQueue& q = streams_[static_cast<size_t>(stream)];
  while (!q.pending.empty()) {
    QueueItem& item = q.pending.front();
    if (item.kind == QueueItem::Kind::work) {
      resolve(q, stream, item);
      q.pending.pop_front();
    } else if (item.kind == QueueItem::Kind::record) {
      const int64_t id = item.event;
      q.pending.pop_front();
      resolve_event(id, q.end);
    } else if (item.kind == QueueItem::Kind::wait) {
      EventState* e = event(item.event);
      if (e->time < 0) {
        e->blocked.push_back(stream);
        break;
      }
      q.end = std::max(q.end, e->time);
      --e->waits;
      q.pending.pop_front();
    } else {
      if (!item.arrived) {
        item.arrived = true;
        Collective& c = *item.collective;
        c.members[static_cast<size_t>(item.member)].arrived = true;
        item.seconds = beside_products_.ahead(way_of(stream, c, item.phase));
        c.start = std::max({c.start, q.end - item.seconds, item.launched});
        if (++c.arrived == static_cast<int64_t>(c.members.size()))
          simulation_.all_arrived(item.collective);
      }
      break;
    }
  }
  if (waiting_stream_ == stream &&
      (waiting_empty_ ? q.pending.empty() : q.resolved >= waiting_resolved_)) {
    waiting_stream_ = -1;
    simulation_.wake_later(rank());
  }
}

void SimBackend::resolve_event(int64_t id, double time) {
  EventState* e = event(id);
  e->time = time;
  const std::vector<int32_t> blocked = std::move(e->blocked);
  e->blocked.clear();
  for (int32_t stream : blocked) advance(stream);
}

void SimBackend::complete(int32_t stream, const Collective& collective) {
  StreamQueue& q = streams_[static_cast<size_t>(stream)];
  const QueueItem item = q.pending.front();
  q.pending.pop_front();
  const double end = beside_products_.ended(way_of(stream, collective, item.phase), q.end,
                                            collective.start, collective.end);
  if (collective.end > collective.start || detailed_) {
    Interval interval;
    // What goes on beside a product of its own stream shows as the product.
    interval.start = item.seconds > 0 ? std::max(collective.start, q.end) : collective.start;
    interval.end = end;
    interval.activity = item.activity;
    interval.phase = item.phase;
    interval.stream = stream;
    interval.name = item.name;
    interval.group = collective.group->name.c_str();
    interval.bytes = item.bytes;
    interval.order = item.order;
    q.log.add(interval, detailed_);
  }
  note_traffic(collective, static_cast<size_t>(item.member));
  slow_down(stream, collective, static_cast<size_t>(item.member));
  ended(q, end);
  advance(stream);
}

EventState* SimBackend::event(int64_t id) {
  require(id < first_event_ + static_cast<int64_t>(events_.size()), "an event of this device");
  return id < first_event_ ? nullptr : &events_[static_cast<size_t>(id - first_event_)];
}

Event SimBackend::record(Stream stream) {
  StreamQueue& q = queue(stream);
  // An event that is over on the host's clock orders nothing any more.
  while (!events_.empty()) {
    const EventState& oldest = events_.front();
    if (oldest.time < 0 || oldest.time > host_ || oldest.waits > 0 ||
        !simulation_.tasks().done(oldest.task))
      break;
    events_.pop_front();
    ++first_event_;
  }
  const int64_t id = first_event_ + static_cast<int64_t>(events_.size());
  events_.emplace_back();
  if (!q.also.empty()) {  // one task to stand for all that the event comes after
    const TaskGraph::Handle all = simulation_.tasks().open(next_key());
    chain(stream.id, all);
    simulation_.tasks().close(all, nullptr);
  }
  events_.back().task = q.last;
  if (q.pending.empty()) {
    events_.back().time = q.end;
  } else {
    QueueItem item;
    item.kind = QueueItem::Kind::record;
    item.event = id;
    push(stream.id, item);
  }
  return {id};
}

void SimBackend::wait(Stream stream, Event awaited) {
  StreamQueue& q = queue(stream);
  require(awaited.id >= 0, "an event of this device");
  EventState* e = event(awaited.id);
  if (!e) return;
  if (e->task && !simulation_.tasks().done(e->task)) q.also.push_back(e->task);
  if (e->time >= 0 && q.pending.empty()) {
    q.end = std::max(q.end, e->time);
    return;
  }
  ++e->waits;
  QueueItem item;
  item.kind = QueueItem::Kind::wait;
  item.event = awaited.id;
  push(stream.id, item);
}

void SimBackend::wait_for(int32_t stream, int64_t resolved) {
  const auto ready = [&] {
    const StreamQueue& q = streams_[static_cast<size_t>(stream)];
    return resolved < 0 ? q.pending.empty() : q.resolved >= resolved;
  };
  while (!ready()) {
    waiting_stream_ = stream;
    waiting_empty_ = resolved < 0;
    waiting_resolved_ = resolved;
    simulation_.actors().block(rank());
  }
  waiting_stream_ = -1;
}

void SimBackend::synchronize(Stream stream) {
  queue(stream);
  wait_for(stream.id, -1);
  StreamQueue& q = streams_[static_cast<size_t>(stream.id)];
  host_ = std::max(host_, q.end);
  join(q);
}

void SimBackend::copy(int64_t bytes, const char* name, int32_t stream) {
  make_room(stream);
  busy(gpu_.launch_overhead_seconds.value, Activity::host);
  QueueItem item;
  item.name = name;
  item.activity = phase_ == Phase::data ? Activity::data : Activity::offload;
  item.phase = phase_;
  item.order = ++order_;
  item.launched = host_;
  item.bytes = bytes;
  item.seconds =
      copy_cost(Bytes(static_cast<double>(bytes)), simulation_.machine().profile().pcie).value *
      correction(item);
  item.host_bound = host_ + item.seconds;
  push(stream, item);
}

void SimBackend::write(const Tensor& tensor, const void* host, Stream stream) {
  queue(stream);
  if (tensor.has_storage() && host) {
    const auto* bytes = static_cast<const std::byte*>(host);
    auto staged = std::make_shared<std::vector<std::byte>>(bytes, bytes + tensor.bytes());
    chain(stream.id, simulation_.tasks().open(next_key()));
    StreamQueue& q = streams_[static_cast<size_t>(stream.id)];
    simulation_.tasks().close(q.last, [to = HeldTensor(tensor), staged] {
      if (!staged->empty()) std::memcpy(to.view.data, staged->data(), staged->size());
    });
  }
  copy(tensor.bytes(), "write", stream.id);
}

void SimBackend::write_bytes(int64_t bytes, Stream stream) {
  queue(stream);
  copy(bytes, "write", stream.id);
}

void SimBackend::read_bytes(int64_t bytes, Stream stream) {
  queue(stream);
  copy(bytes, "read", stream.id);
  synchronize(stream);
}

void SimBackend::read(const Tensor& tensor, void* host, Stream stream) {
  queue(stream);
  if (host && !tensor.has_storage())
    throw Error(ErrorClass::internal,
                fmt::format("internal error: \"{}\" {} is read by the host but has no storage "
                            "(numerics none keeps only tensors of class control)",
                            tensor.name(), tensor.shape.str()));
  read_bytes(tensor.bytes(), stream);
  if (host && tensor.bytes() > 0)
    std::memcpy(host, tensor.data(), static_cast<size_t>(tensor.bytes()));
}

void SimBackend::abort(const std::string& message) { throw Error(ErrorClass::fault, message); }

GroupState& SimBackend::join(const Group& group, const std::string& name, int64_t& index) {
  index = group.index_of(rank());
  require(index >= 0, "a rank asks only for groups that it is in");
  properties_.communicator_bytes += communicator_bytes(gpu_, group);
  return simulation_.rendezvous().group(group, name, index);
}

std::unique_ptr<Communicator> SimBackend::communicator(const Group& group,
                                                       const std::string& name) {
  int64_t index = 0;
  GroupState& state = join(group, name, index);
  return std::make_unique<SimCommunicator>(group, index, name, *this, state);
}

void SimBackend::collective(GroupState& group, int64_t rank_in_group, const CollectiveCall& call,
                            Stream stream) {
  queue(stream);
  make_room(stream.id);
  busy(collective_host_seconds_, Activity::host);
  QueueItem item;
  item.kind = QueueItem::Kind::collective;
  item.activity = is_token_exchange(call.kind, group.name) ? Activity::all_to_all
                                                           : Activity::other_communication;
  item.phase = phase_;
  item.order = ++order_;
  item.launched = host_;
  if (in_flight_++ == 0) oldest_in_flight_ = host_;
  item.name = collective_name(call.kind);
  item.bytes = bytes_sent(call, rank_in_group, group.group.size());
  size_t member = 0;
  item.collective =
      simulation_.rendezvous().call(group, rank_in_group, *this, stream.id, call, member);
  item.member = static_cast<int32_t>(member);
  last_call_ = {&group, call.kind, item.collective->number, call.purpose};
  push(stream.id, item);
  simulation_.settle();
  if (simulation_.settings().copies_gathered && call.kind == CollectiveKind::all_gather &&
      std::strcmp(call.purpose, "parameters") == 0)
    copy_gathered(call.recv.bytes());
  // Compute is the first stream that a program asks for.
  if (simulation_.settings().blocking_wait && stream.id == 0 && !is_pair(call.kind))
    synchronize(stream);
}

std::string SimBackend::last_called() const {
  return last_call_.group ? call_name(last_call_.kind, last_call_.number, last_call_.group->name,
                                      last_call_.purpose)
                          : "";
}

void SimBackend::chain(int32_t stream, const TaskGraph::Handle& task) {
  StreamQueue& q = streams_[static_cast<size_t>(stream)];
  simulation_.tasks().depend(task, q.last);
  for (const TaskGraph::Handle& a : q.also) simulation_.tasks().depend(task, a);
  q.also.clear();
  q.last = task;
}

void SimBackend::add_task(const OpCall& call, int32_t stream) {
  const Reference reference = simulation_.reference(*call.op);
  if (!reference)
    throw Error(ErrorClass::internal,
                fmt::format("internal error: op {} has no reference arithmetic", call.op->name));
  struct Held {
    ReferenceCall call;
    std::array<std::shared_ptr<void>, kMaxOperands> keep;
  };
  auto held = std::make_shared<Held>();
  held->call = reference_call(call);
  for (size_t i = 0; i < static_cast<size_t>(call.count); ++i)
    if (call.tensors[i].buffer) held->keep[i] = call.tensors[i].buffer->storage;
  const TaskGraph::Handle task = simulation_.tasks().open({rank(), order_});
  chain(stream, task);
  simulation_.tasks().close(task, [reference, held] { reference(held->call); });
}

void SimBackend::join(StreamQueue& q) {
  simulation_.tasks().join(q.last);
  for (const TaskGraph::Handle& a : q.also) simulation_.tasks().join(a);
  q.also.clear();
}

void SimBackend::note_traffic(const Collective& collective, size_t member) {
  // A pair's meeting has the kind of who came first; each notes its own.
  const bool pair = is_pair(collective.kind);
  const CollectiveKind kind = !pair         ? collective.kind
                              : member == 0 ? CollectiveKind::send
                                            : CollectiveKind::recv;
  TrafficCount* count = nullptr;
  for (auto it = traffic_.rbegin(); it != traffic_.rend() && !count; ++it)
    if (it->group == collective.group && it->kind == kind && it->purpose == collective.purpose &&
        std::string_view(it->way) == collective.plan.way)
      count = &*it;
  if (!count)
    count = &traffic_.emplace_back(
        TrafficCount{collective.group, kind, collective.purpose, collective.plan.way, 0, 0, 0, 0});
  ++count->calls;
  count->bytes += collective.plan.sent[member];
  count->bytes_off_node += collective.plan.sent_off_node[member];
  count->seconds += collective.end - collective.start;
}

Profile SimBackend::take_profile(bool detailed) {
  Profile profile;
  host_log_.take(profile.intervals);
  for (StreamQueue& q : streams_) q.log.take(profile.intervals);
  for (const TrafficCount& t : traffic_)
    profile.traffic.push_back({collective_name(t.kind), t.purpose, t.group->name, t.way,
                               t.group->group.size(), t.calls, static_cast<int64_t>(t.bytes),
                               static_cast<int64_t>(t.bytes_off_node), t.seconds});
  traffic_.clear();
  detailed_ = detailed;
  return profile;
}

void SimBackend::finish() {
  for (size_t s = 0; s < streams_.size(); ++s) synchronize({static_cast<int32_t>(s)});
  finished_ = true;
}

}  // namespace moetwin
