#include "backends/cuda/runtime/cuda_backend.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstring>

#include "backends/cuda/runtime/check.h"
#include "backends/cuda/runtime/cuda_communicator.h"
#include "backends/cuda/runtime/peak.h"

namespace moetwin {
namespace {

/// cuBLAS asks for this much on sm_90 and later; a workspace of its own for each stream keeps
/// products on two streams apart.
constexpr size_t kCublasWorkspace = size_t{32} << 20;
/// What stays free for contexts, NCCL's buffers, scratch and workspaces.
constexpr double kShareOfOthers = 0.06;

class NvtxRange {
 public:
  explicit NvtxRange(const char* name) { nvtxRangePushA(name); }
  ~NvtxRange() { nvtxRangePop(); }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

int64_t element_count(const CollectiveCall& call) {
  return call.send.defined() ? call.send.elements()
                             : (call.recv.defined() ? call.recv.elements() : 0);
}

std::string sizes_of(const CollectiveCall& call) {
  const Tensor& typed = call.send.defined() ? call.send : call.recv;
  if (!typed.defined()) return "";
  std::string text = dtype_name(typed.dtype);
  if (call.send.defined()) text += " " + call.send.shape.str();
  if (call.send.defined() && call.recv.defined() && !(call.send.shape == call.recv.shape))
    text += " to";
  if (call.recv.defined() && !(call.send.defined() && call.send.shape == call.recv.shape))
    text += " " + call.recv.shape.str();
  if (call.kind == CollectiveKind::all_to_all_v && call.send_rows->size() <= 16)
    text += fmt::format(", rows to members {}, from members {}", fmt::join(*call.send_rows, "+"),
                        fmt::join(*call.recv_rows, "+"));
  if (call.kind == CollectiveKind::broadcast) text += fmt::format(" from member {}", call.peer);
  if (call.kind == CollectiveKind::send) text += fmt::format(" to member {}", call.peer);
  if (call.kind == CollectiveKind::recv) text += fmt::format(" from member {}", call.peer);
  return text;
}

}  // namespace

CudaBackend::CudaBackend(Job& job, RankPlace place, CudaSettings settings)
    : job_(job),
      place_(std::move(place)),
      settings_(settings),
      log_(place_.rank),
      timeline_(events_, [&job] { return job.now(); }),
      staging_(events_) {
  cudaDeviceProp device;
  check_cuda(cudaGetDeviceProperties(&device, place_.device), "cudaGetDeviceProperties");
  multiprocessors_ = device.multiProcessorCount;
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  properties_.name = device.name;
  properties_.memory_bytes = static_cast<int64_t>(static_cast<double>(free) * (1 - kShareOfOthers) /
                                                  static_cast<double>(settings_.ranks_on_device));
  properties_.rank = place_.rank;
  properties_.world = place_.world;
  const auto& nodes = place_.node_of;
  properties_.node = nodes.at(static_cast<size_t>(place_.rank));
  properties_.gpus_per_node = std::count(nodes.begin(), nodes.end(), properties_.node);
  const Peak peak = peak_of(properties_.name, settings_.dtype, settings_.tf32);
  properties_.peak_flop_per_second = peak.flop_per_second;
  properties_.peak_source = peak.source;
  check_cuda(cudaStreamCreateWithFlags(&exchange_, cudaStreamNonBlocking), "cudaStreamCreate");
  exchange_memory_ = std::make_unique<StreamScratch>();
  job_.add(*this, place_.rank);
}

CudaBackend::~CudaBackend() {
  job_.remove(*this);
  for (const StreamState& s : streams_) cudaStreamSynchronize(s.stream);
  cudaStreamSynchronize(exchange_);
  exchange_memory_.reset();
  cudaStreamDestroy(exchange_);
  for (StreamState& s : streams_) {
    if (s.cublas) cublasDestroy(s.cublas);
    s.scratch.reset();
    cudaFree(s.cublas_workspace);
    cudaStreamDestroy(s.stream);
  }
  if (cublas_lt_) cublasLtDestroy(cublas_lt_);
}

bool CudaBackend::supports(const Op& op) const { return find_cuda_kernel(op) != nullptr; }

Block CudaBackend::reserve(int64_t bytes) {
  const Block none = {-1, 0, false};
  if (reserved_ + bytes > properties_.memory_bytes) return none;
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, static_cast<size_t>(bytes));
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return none;
  }
  check_cuda(result, "cudaMalloc");
  reserved_ += bytes;
  const Block block = {next_block_++, bytes, false};
  blocks_[block.id] = std::shared_ptr<void>(memory, [](void* m) { cudaFree(m); });
  return block;
}

void CudaBackend::release(const Block& block) {
  reserved_ -= block.bytes;
  blocks_.erase(block.id);  // tensors that are still there keep the memory
}

std::shared_ptr<void> CudaBackend::storage(const Block& block, int64_t offset, int64_t bytes,
                                           MemoryClass) {
  const std::shared_ptr<void>& memory = blocks_.at(block.id);
  char* begin = static_cast<char*>(memory.get()) + offset;
  if (settings_.poison) {
    // The piece may be in use by work that was launched before its last owner let go of it: on the
    // block's stream. Waiting for more would wait for transfers that others start only later.
    const bool streamed = block.stream >= 0 && block.stream < static_cast<int32_t>(streams_.size());
    const cudaStream_t on = streamed ? state({block.stream}).stream : exchange_;
    check_cuda(cudaMemsetAsync(begin, 0xff, static_cast<size_t>(bytes), on), "poison");
    if (!streamed) check_cuda(cudaStreamSynchronize(on), "poison");
  }
  return {memory, begin};
}

Stream CudaBackend::stream(const char* name) {
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities");
  StreamState state;
  state.name = name;
  // Computing is on the first stream; what runs beside it is waited for and goes first.
  check_cuda(cudaStreamCreateWithPriority(&state.stream, cudaStreamNonBlocking,
                                          streams_.empty() ? least : greatest),
             "cudaStreamCreate");
  timeline_.add_stream(state.stream);
  streams_.push_back(std::move(state));
  return {static_cast<int32_t>(streams_.size()) - 1};
}

CudaBackend::StreamState& CudaBackend::state(Stream stream) {
  require(stream.id >= 0 && stream.id < static_cast<int32_t>(streams_.size()),
          "a stream of this device");
  return streams_[static_cast<size_t>(stream.id)];
}

void CudaBackend::prepare_for_ops(StreamState& s) {
  if (s.cublas) return;
  if (!cublas_lt_) check_cublas(cublasLtCreate(&cublas_lt_), "cublasLtCreate");
  check_cublas(cublasCreate(&s.cublas), "cublasCreate");
  check_cublas(cublasSetStream(s.cublas, s.stream), "cublasSetStream");
  check_cuda(cudaMalloc(&s.cublas_workspace, kCublasWorkspace), "workspace of cuBLAS");
  check_cublas(cublasSetWorkspace(s.cublas, s.cublas_workspace, kCublasWorkspace),
               "cublasSetWorkspace");
  s.scratch = std::make_unique<StreamScratch>();
}

void CudaBackend::launch(const OpCall& call, Stream stream) {
  job_.check();
  StreamState& s = state(stream);
  prepare_for_ops(s);
  // An op without kernels takes no time on the modelled GPU and is no stretch there either.
  int64_t bytes = 0;
  bool shown = true;
  if (timeline_.detailed()) {
    kernels_.clear();
    call.op->kernels(call, KernelClass::moetwin, kernels_);
    double moved = 0;
    for (const KernelWork& k : kernels_) moved += k.bytes;
    bytes = static_cast<int64_t>(moved);
    shown = !kernels_.empty();
  }
  const NvtxRange range(call.op->name);
  s.scratch->start();
  CudaLaunchContext context;
  context.stream = s.stream;
  context.cublas = s.cublas;
  context.cublas_lt = cublas_lt_;
  context.scratch = s.scratch.get();
  context.plans = &plans_;
  context.multiprocessors = multiprocessors_;
  context.tf32 = settings_.tf32;
  ++order_;
  if (shown) timeline_.before_op(stream.id, call.op->name, bytes, order_);
  launch_cuda_op(call, context);
  if (shown) timeline_.after_op(stream.id);
}

Event CudaBackend::record(Stream stream) {
  StreamState& s = state(stream);
  // An event that is over orders nothing any more.
  for (int i = 0; i < 2 && !recorded_.empty(); ++i) {
    if (cudaEventQuery(recorded_.front().get()) != cudaSuccess) break;
    recorded_.pop_front();
    ++first_event_;
  }
  recorded_.push_back(events_.get());
  check_cuda(cudaEventRecord(recorded_.back().get(), s.stream), "cudaEventRecord");
  return {first_event_ + static_cast<int64_t>(recorded_.size()) - 1};
}

void CudaBackend::wait(Stream stream, Event event) {
  StreamState& s = state(stream);
  require(event.id >= 0 && event.id < first_event_ + static_cast<int64_t>(recorded_.size()),
          "an event of this device");
  if (event.id < first_event_) return;
  timeline_.close(stream.id);
  check_cuda(cudaStreamWaitEvent(s.stream,
                                 recorded_[static_cast<size_t>(event.id - first_event_)].get(), 0),
             "cudaStreamWaitEvent");
}

void CudaBackend::wait_for(cudaStream_t stream) {
  timeline_.host_waits();
  const cudaError_t result = cudaStreamSynchronize(stream);
  timeline_.host_goes_on();
  job_.check();
  check_cuda(result, "waiting for the device");
}

void CudaBackend::synchronize(Stream stream) {
  StreamState& s = state(stream);
  timeline_.close(stream.id);
  wait_for(s.stream);
}

void CudaBackend::write(const Tensor& tensor, const void* host, Stream stream) {
  job_.check();
  StreamState& s = state(stream);
  if (!host) return;
  const Span span = timeline_.begin_copy(stream.id, "write", tensor.bytes(), ++order_);
  staging_.to_device(tensor.data(), host, static_cast<size_t>(tensor.bytes()), s.stream);
  timeline_.end(span);
}

void CudaBackend::read(const Tensor& tensor, void* host, Stream stream) {
  job_.check();
  StreamState& s = state(stream);
  if (!tensor.has_storage())
    throw Error(ErrorClass::internal,
                fmt::format("internal error: \"{}\" {} is read by the host but has no storage",
                            tensor.name(), tensor.shape.str()));
  const Span span = timeline_.begin_copy(stream.id, "read", tensor.bytes(), ++order_);
  timeline_.host_waits();
  if (tensor.bytes() > 0)
    staging_.to_host(host, tensor.data(), static_cast<size_t>(tensor.bytes()), s.stream);
  timeline_.end(span);
  if (tensor.bytes() == 0) check_cuda(cudaStreamSynchronize(s.stream), "waiting for the device");
  timeline_.host_goes_on();
  job_.check();
}

// The host has been busy since it last waited: that was this work. `seconds` is what it takes on a
// modelled host.
void CudaBackend::host_work(double, Activity activity) { timeline_.host_was(activity); }

void CudaBackend::phase(Phase phase, const char* label) {
  timeline_.phase(phase);
  if (*label) {
    nvtxRangePushA(label);
    ++ranges_;
  } else if (ranges_ > 0) {
    nvtxRangePop();
    --ranges_;
  }
}

Profile CudaBackend::take_profile(bool detailed) {
  for (size_t s = 0; s < streams_.size(); ++s) synchronize({static_cast<int32_t>(s)});
  Profile profile;
  timeline_.take(profile.intervals, share_durations());
  profile.traffic = traffic_.take();
  timeline_.detail(detailed);
  return profile;
}

// What a rank's own events tell of a collective includes its wait for the last member. The shortest
// duration over the group is that of the member that waited least.
Timeline::Shortest CudaBackend::share_durations() {
  Timeline::Shortest all = timeline_.durations();
  const std::vector<NcclGroup*> groups = groups_;  // only this thread changes the list
  for (NcclGroup* group : groups) {
    const auto c = static_cast<size_t>(group->log_index());
    if (c >= all.size() || all[c].empty()) continue;
    const auto bytes = all[c].size() * sizeof(double);
    exchange_memory_->start();
    void* device = exchange_memory_->take(static_cast<int64_t>(bytes));
    staging_.to_device(device, all[c].data(), bytes, exchange_);
    CollectiveCall call;
    call.kind = CollectiveKind::all_reduce;
    call.purpose = "durations";
    const auto start = events_.get(), end = events_.get();
    const uint64_t logged = note(*group, call, fmt::format("fp64 [{}]", all[c].size()), -1);
    check_cuda(cudaEventRecord(start.get(), exchange_), "cudaEventRecord");
    group->track(logged, start, end);
    group->smallest(static_cast<double*>(device), static_cast<int64_t>(all[c].size()), exchange_);
    check_cuda(cudaEventRecord(end.get(), exchange_), "cudaEventRecord");
    group->tracked_end();
    staging_.to_host(all[c].data(), device, bytes, exchange_);
    job_.check();
  }
  return all;
}

uint64_t CudaBackend::note(NcclGroup& group, const CollectiveCall& call, std::string sizes,
                           int32_t stream) {
  CallRecord record;
  record.communicator = group.log_index();
  record.kind = call.kind;
  record.sequence = group.next_number(is_pair(call.kind));
  record.dtype = call.send.defined() ? call.send.dtype : call.recv.dtype;
  record.count = element_count(call);
  record.what = std::move(sizes);
  record.purpose = call.purpose;
  record.stream = stream;
  record.called = job_.now();
  return log_.called(std::move(record));
}

const char* CudaBackend::keep(const std::string& name) {
  return names_.insert(name).first->c_str();
}

void CudaBackend::collective(NcclGroup& group, const CollectiveCall& call, Stream stream) {
  job_.check();
  StreamState& s = state(stream);
  if (settings_.compare_collectives) compare_before(job_, group, call);
  const NvtxRange range(collective_name(call.kind));
  const SentVolume sent = sent_by(call, group.group(), group.rank(), place_.node_of);
  const Activity activity = is_token_exchange(call.kind, group.name())
                                ? Activity::all_to_all
                                : Activity::other_communication;
  const uint64_t logged = note(group, call, sizes_of(call), stream.id);
  Span span =
      timeline_.begin(stream.id, activity, collective_name(call.kind), sent.bytes, ++order_);
  span.group = keep(group.name());
  if (!is_pair(call.kind)) span.communicator = group.log_index();
  // Tracked from here on: NCCL may keep the call itself waiting.
  group.track(logged, span.start, span.end);
  group.enqueue(call, s.stream);
  timeline_.end(span);
  group.tracked_end();
  traffic_.add(call, group.name(), group.group().size(), sent);
}

void CudaBackend::aside(NcclGroup& group, const CollectiveCall& call, EventPool& events,
                        cudaStream_t stream) {
  job_.check();
  const auto start = events.get(), end = events.get();
  const uint64_t logged = note(group, call, sizes_of(call), -1);
  check_cuda(cudaEventRecord(start.get(), stream), "cudaEventRecord");
  group.track(logged, start, end);
  group.enqueue(call, stream);
  check_cuda(cudaEventRecord(end.get(), stream), "cudaEventRecord");
  group.tracked_end();
}

std::unique_ptr<Communicator> CudaBackend::communicator(const Group& group,
                                                        const std::string& name) {
  job_.check();
  const int64_t index = group.index_of(place_.rank);
  require(index >= 0, "a rank asks only for groups that it is in");
  std::string key =
      fmt::format("{} ({} ranks from {} by {}", name, group.n1, group.base, group.stride1);
  key += group.n0 == 1 ? ")" : fmt::format(", {} times by {})", group.n0, group.stride0);
  const int before = same_name_[key]++;
  const std::string label = before ? fmt::format("{} #{}", name, before + 1) : name;
  if (before) key += fmt::format(" #{}", before + 1);
  return std::make_unique<CudaCommunicator>(group, index, name, label, key, *this);
}

void CudaBackend::add(NcclGroup& group) {
  const std::lock_guard lock(groups_mutex_);
  groups_.push_back(&group);
}

void CudaBackend::forget(NcclGroup& group) {
  const std::lock_guard lock(groups_mutex_);
  std::erase(groups_, &group);
}

std::optional<std::string> CudaBackend::look() {
  const std::lock_guard lock(groups_mutex_);
  std::optional<std::string> error;
  for (NcclGroup* group : groups_)
    if (auto said = group->look(job_.now()); said && !error) error = std::move(said);
  return error;
}

void CudaBackend::abort_calls() {
  const std::lock_guard lock(groups_mutex_);
  for (NcclGroup* group : groups_) group->abort();
}

void CudaBackend::abort(const std::string& message) {
  job_.fail({ErrorClass::fault, message});
  throw Error(ErrorClass::fault, message);
}

void CudaBackend::finish() {
  for (size_t s = 0; s < streams_.size(); ++s) synchronize({static_cast<int32_t>(s)});
  log_.program_ended();
}

}  // namespace moetwin
