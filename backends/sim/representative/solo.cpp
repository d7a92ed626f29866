#include "backends/sim/representative/solo.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <string_view>
#include <utility>

#include "backends/sim/cost/beside.h"
#include "backends/sim/cost/framework.h"
#include "backends/sim/cost/roofline.h"
#include "core/base/error.h"
#include "core/device/bytes_sent.h"
#include "core/device/reference_call.h"

namespace moetwin {

namespace {

class SoloCommunicator : public Communicator {
 public:
  SoloCommunicator(const Group& group, int64_t rank_in_group, const std::string& name,
                   SoloBackend& backend)
      : Communicator(group, rank_in_group, name), backend_(backend) {}

 protected:
  void start(const CollectiveCall& call, Stream stream) override {
    backend_.collective(group(), name(), call, stream);
  }

 private:
  SoloBackend& backend_;
};

double row_bytes(const Tensor& tensor) {
  int64_t bytes = dtype_size(tensor.dtype);
  for (int d = 1; d < tensor.shape.rank; ++d) bytes *= tensor.shape[d];
  return static_cast<double>(bytes);
}

/// From every member to every other, where each sends as `me` does to those behind it in the ring.
std::vector<double> rows_alike(const CollectiveCall& call, int64_t me) {
  const std::vector<int64_t>& mine = *call.send_rows;
  const auto n = static_cast<int64_t>(mine.size());
  std::vector<double> rows(mine.size() * mine.size());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      rows[static_cast<size_t>(i * n + j)] =
          static_cast<double>(mine[static_cast<size_t>((me + j - i + n) % n)]);
  return rows;
}

/// Bytes as CollectiveShape has them.
double shape_bytes(const CollectiveCall& call) {
  switch (call.kind) {
    case CollectiveKind::all_gather:
    case CollectiveKind::recv:
      return static_cast<double>(call.recv.bytes());
    case CollectiveKind::barrier:
      return 0;
    default:
      return static_cast<double>(call.send.bytes());
  }
}

}  // namespace

SoloBackend::SoloBackend(CollectivePrices& prices, const SoloSettings& settings, int64_t rank,
                         const Peers* peers)
    : prices_(prices),
      gpu_(prices.machine().profile().gpu),
      settings_(settings),
      peers_(peers),
      corrections_(prices.machine().profile().corrections),
      overlap_(settings.tensor_parallel.pieces) {
  const Machine& machine = prices.machine();
  properties_.name = gpu_.name + " (modelled)";
  properties_.context_bytes =
      static_cast<int64_t>(gpu_.context.value) + framework_costs(settings.kernels.of).memory_bytes;
  properties_.memory_bytes = static_cast<int64_t>(gpu_.memory.value) - properties_.context_bytes;
  properties_.rank = rank;
  properties_.world = machine.world();
  properties_.node = machine.node_of(rank);
  properties_.gpus_per_node = machine.profile().gpus_per_node;
  properties_.numerics = false;
  properties_.kernels = settings.kernels;
  properties_.peak_flop_per_second = peak(gpu_, KernelKind::gemm, settings.compute_dtype).value;
}

std::shared_ptr<void> SoloBackend::storage(const Block&, int64_t, int64_t bytes,
                                           MemoryClass memory_class) {
  if (memory_class != MemoryClass::control) return nullptr;
  void* memory = std::malloc(static_cast<size_t>(std::max<int64_t>(bytes, 8)));
  if (!memory) throw std::bad_alloc();
  return std::shared_ptr<void>(memory, std::free);
}

Stream SoloBackend::stream(const char*) { return {streams_++}; }

int8_t SoloBackend::clock(Stream stream) const {
  require(stream.id >= 0 && stream.id < std::min(streams_, kClocks - 1),
          "a stream of this device that has a clock");
  return static_cast<int8_t>(stream.id + 1);
}

void SoloBackend::add(Item item) {
  double& host = clocks_[kHostClock];
  double& stream = clocks_[static_cast<size_t>(item.clock)];
  switch (item.kind) {
    case Item::Kind::work:
      stream = std::max(stream + item.seconds, host + item.host_bound);
      host += item.host;
      break;
    case Item::Kind::collective: {
      host += item.host;
      const double before = stream, start = std::max(stream, host);
      double lost = 0;  // to what goes on beside compute and exchange of tokens
      for (size_t c = kDispatchClock + 1; c < kClocks; ++c) {
        if (c == static_cast<size_t>(item.clock)) continue;
        const double to_it = lost_to(c, start, item.seconds, item.ports);
        delay(c, start, to_it);
        lost += to_it;
      }
      stream = start + item.seconds + lost;
      note_use(static_cast<size_t>(item.clock), before, start, item);
      break;
    }
    case Item::Kind::synchronize:
      host = std::max(host, stream);
      break;
    case Item::Kind::host:
      host += item.host;
      break;
    case Item::Kind::record:  // these two know more of their event than the list does
    case Item::Kind::wait:
      break;
  }
  if (keeps_list_) piece_.items.push_back(item);
}

void SoloBackend::note_use(size_t clock, double before, double start, const Item& item) {
  Busy& busy = busy_[clock];
  if (start > before + 1e-12) {
    busy = {};
    busy.start = start;
  }
  busy.use.mix(busy.seconds, item.ports, item.seconds);
  busy.seconds += item.seconds;
}

void SoloBackend::delay(size_t clock, double from, double seconds) {
  if (seconds <= 0) return;
  clocks_[clock] += seconds;
  // Few are ever under way.
  constexpr size_t kLatest = 32;
  for (size_t i = events_.size(), n = 0; i-- > 0 && n < kLatest; ++n) {
    Recorded& event = events_[i];
    if (event.clock != static_cast<int8_t>(clock) || event.time <= from) continue;
    // What was launched later may begin earlier: compute may stand at this event already.
    if (clocks_[kComputeClock] == event.time) clocks_[kComputeClock] += seconds;
    event.time += seconds;
  }
}

void SoloBackend::launch(const OpCall& call, Stream stream) {
  kernels_.clear();
  call.op->kernels(call, settings_.kernels, kernels_);
  const FrameworkCosts costs = framework_costs(settings_.kernels.of);
  const double overhead =
      std::max(gpu_.launch_overhead_seconds,
               phase_ == Phase::backward ? costs.backward_kernel_seconds : costs.kernel_seconds)
          .value;
  double bytes = 0, products = 0;
  for (const KernelWork& kernel : kernels_) bytes += kernel.bytes;
  const double factor = settings_.slowness *
                        (corrections_.empty() ? 1 : corrections_.factor(call.op->name, "", bytes));
  Item item;
  item.clock = clock(stream);
  item.phase = phase_;
  item.host = host_time_beside(costs, call).value;
  item.launched = item.host + overhead;
  for (const KernelWork& kernel : kernels_) {
    item.host += overhead;
    double seconds = cost(kernel, gpu_, clock_in(phase_, gpu_)).value * factor;
    if (kernel.kind == KernelKind::gemm) overlap_.product(seconds, piece_.items, clocks_);
    item.seconds += seconds;
    if (is_product(kernel.kind)) products += seconds;
    item.host_bound = std::max(item.host_bound, item.host) + seconds;
  }
  if (item.seconds > 0) item.products = static_cast<float>(products / item.seconds);
  add(item);
  for (size_t i = 0; i < call.op->operands.size(); ++i)
    if (call.op->operands[i].access != Access::read && call.tensors[i].has_storage())
      return run(call);
}

void SoloBackend::run(const OpCall& call) const {
  const Reference reference = settings_.references ? settings_.references(*call.op) : nullptr;
  require(reference != nullptr, "ops that count have reference arithmetic");
  reference(reference_call(call));
}

Event SoloBackend::record(Stream stream) {
  Item item;
  item.kind = Item::Kind::record;
  item.clock = clock(stream);
  add(item);
  events_.push_back({clocks_[static_cast<size_t>(item.clock)], item.clock});
  return {next_event_++};
}

void SoloBackend::wait(Stream stream, Event event) {
  double& end = clocks_[static_cast<size_t>(clock(stream))];
  end = std::max(end, events_[static_cast<size_t>(event.id)].time);
  const int64_t number = event.id - first_event_;
  if (number < 0) return;
  Item item;
  item.kind = Item::Kind::wait;
  item.clock = clock(stream);
  item.event = static_cast<int32_t>(number);
  add(item);
}

void SoloBackend::synchronize(Stream stream) {
  Item item;
  item.kind = Item::Kind::synchronize;
  item.clock = clock(stream);
  add(item);
}

void SoloBackend::copy(const Tensor& tensor, const char* name, Stream stream) {
  const auto bytes = static_cast<double>(tensor.bytes());
  Item item;
  item.clock = clock(stream);
  item.activity = phase_ == Phase::data ? Activity::data : Activity::offload;
  item.phase = phase_;
  item.host = item.launched = gpu_.launch_overhead_seconds.value;
  item.seconds = copy_cost(Bytes(bytes), prices_.machine().profile().pcie).value *
                 (corrections_.empty() ? 1 : corrections_.factor(name, "", bytes));
  item.host_bound = item.host + item.seconds;
  add(item);
}

void SoloBackend::write(const Tensor& tensor, const void* host, Stream stream) {
  if (tensor.has_storage() && host && tensor.bytes() > 0)
    std::memcpy(tensor.data(), host, static_cast<size_t>(tensor.bytes()));
  copy(tensor, "write", stream);
}

void SoloBackend::read(const Tensor& tensor, void* host, Stream stream) {
  require(!host || tensor.has_storage(), "what the host reads has storage");
  copy(tensor, "read", stream);
  synchronize(stream);
  if (host && tensor.bytes() > 0)
    std::memcpy(host, tensor.data(), static_cast<size_t>(tensor.bytes()));
}

void SoloBackend::host_work(double seconds, Activity activity) {
  Item item;
  item.kind = Item::Kind::host;
  item.activity = activity;
  item.phase = phase_;
  item.host = seconds;
  add(item);
}

void SoloBackend::phase(Phase phase, const char*) { phase_ = phase; }

Profile SoloBackend::take_profile(bool) { return {}; }

void SoloBackend::abort(const std::string& message) { throw Error(ErrorClass::fault, message); }

std::unique_ptr<Communicator> SoloBackend::communicator(const Group& group,
                                                        const std::string& name) {
  if (group.size() > 1)
    properties_.communicator_bytes += static_cast<int64_t>(gpu_.communicator.value);
  return std::make_unique<SoloCommunicator>(group, group.index_of(properties_.rank), name, *this);
}

namespace {
/// Weights of guests and their gradients, which are made to run beside compute.
bool moves_experts(const CollectiveCall& call) {
  const std::string_view purpose = call.purpose;
  return purpose == "expert weights" || purpose == "expert gradients of guests";
}
}  // namespace

void SoloBackend::collective(const Group& group, const std::string& name,
                             const CollectiveCall& call, Stream stream) {
  Item item;
  item.kind = Item::Kind::collective;
  item.clock = clock(stream);
  item.phase = phase_;
  item.host = std::max(gpu_.launch_overhead_seconds,
                       framework_costs(settings_.kernels.of).collective_seconds)
                  .value;
  CollectivePrice price;
  double sent = 0;  // by this rank
  if (call.kind == CollectiveKind::all_to_all_v) {
    const bool tokens = is_token_exchange(call.kind, name);
    item.activity = tokens ? Activity::all_to_all : Activity::other_communication;
    require(!tokens || peers_ != nullptr, "a rank that exchanges tokens knows of its peers'");
    std::vector<double> bytes =
        tokens ? peers_->rows(call, group) : rows_alike(call, group.index_of(properties_.rank));
    for (double& b : bytes) b *= row_bytes(call.send);
    const auto me = static_cast<size_t>(group.index_of(properties_.rank)),
               n = static_cast<size_t>(group.size());
    sent = std::accumulate(bytes.begin() + static_cast<int64_t>(me * n),
                           bytes.begin() + static_cast<int64_t>((me + 1) * n), -bytes[me * n + me]);
    price = prices_.all_to_all(group, name, std::move(bytes));
  } else {
    item.activity = Activity::other_communication;
    const auto rank = group.index_of(properties_.rank);
    sent = static_cast<double>(bytes_sent(call, rank, group.size()));
    price = prices_.price(call.kind, group, name, shape_bytes(call), sent);
  }
  item.seconds = price.seconds;
  const bool beside_products =
      item.clock == kComputeClock && std::strcmp(call.purpose, "sequence parallel") == 0;
  if (beside_products && call.kind == CollectiveKind::reduce_scatter)
    item.seconds -= overlap_.reduction(item.seconds);
  if (settings_.tensor_parallel.sums && phase_ == Phase::backward && item.clock == kComputeClock &&
      std::strcmp(call.purpose, "tensor parallel") == 0)
    item.seconds -= overlap_.beside_latest(item.seconds);
  item.ports = price.ports;
  if (moves_experts(call) && price.seconds > 0) {
    const Beside slows = beside(gpu_, false, sent, price.seconds);
    item.slows_products = slows.products;
    item.slows_others = slows.others;
  }
  if (call.kind == CollectiveKind::all_to_all_v && name == "ep") item.group = group.base;
  add(item);
  if (settings_.blocking_wait && item.clock == kComputeClock && !is_pair(call.kind))
    synchronize(stream);
  if (settings_.copies_gathered && call.kind == CollectiveKind::all_gather &&
      std::strcmp(call.purpose, "parameters") == 0)
    copy_out(call.recv.bytes());
  if (beside_products && call.kind == CollectiveKind::all_gather)
    overlap_.gather(item.seconds, piece_.items);
  add_sent(piece_.sent, {collective_name(call.kind), call.purpose, price.way, name, group.size(),
                         price.sent, price.sent_off_node, 1, price.seconds});
  if (call.recv.has_storage()) {
    if (call.kind == CollectiveKind::all_reduce) return;  // sums over ranks steer nothing
    require(peers_ != nullptr, "a rank that exchanges counts knows of its peers'");
    peers_->fill(call, group);
  }
}

void SoloBackend::copy_out(int64_t bytes) {
  Item item;
  item.clock = kComputeClock;
  item.phase = phase_;
  item.seconds =
      cost(copy_of_gathered(bytes, settings_.compute_dtype), gpu_).value * settings_.slowness;
  item.host_bound = item.seconds;
  add(item);
}

SoloBackend::Piece SoloBackend::cut() {
  first_event_ = next_event_;
  overlap_.cut();
  return std::exchange(piece_, {});
}

}  // namespace moetwin
