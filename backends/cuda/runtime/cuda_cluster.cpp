#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "backends/cuda/cluster.h"
#include "backends/cuda/job/interfaces.h"
#include "backends/cuda/job/launch.h"
#include "backends/cuda/job/rendezvous.h"
#include "backends/cuda/job/socket.h"
#include "backends/cuda/runtime/check.h"
#include "backends/cuda/runtime/cuda_backend.h"
#include "backends/cuda/runtime/machine.h"
#include "backends/cuda/runtime/self_test.h"
#include "core/base/bytes.h"

namespace moetwin {
namespace {

constexpr double kForever = 1e9;

bool is_on(const Environment& environment, const char* name) {
  const auto value = environment(name);
  return value && *value != "0";
}

class RealCluster : public CudaCluster {
 public:
  RealCluster(const Scenario& scenario, CudaOptions options)
      : options_(std::move(options)),
        launch_(find_launch(options_.environment, scenario)),
        timeout_seconds_(scenario.distributed_config.timeout_seconds),
        nccl_(scenario.nccl) {
    require(options_.clock != nullptr, "a clock is given");
    check_scenario(scenario);
    settings_.dtype = parse_dtype(scenario.training_config.dtype);
    settings_.poison = scenario.memory.poison;
    settings_.compare_collectives = options_.compare_collectives ||
                                    scenario.distributed_config.check_collectives ||
                                    is_on(options_.environment, "MOETWIN_CHECK_COLLECTIVES");
    share_gpus_ = options_.share_gpus || is_on(options_.environment, "MOETWIN_SHARE_GPUS");
    set_nccl_environment(nccl_);
    machine_ = look_at_machine();
    choose_devices();
    interfaces_ = selected_interfaces(
        options_.environment("NCCL_SOCKET_IFNAME").value_or(nccl_value("NCCL_SOCKET_IFNAME")),
        network_interfaces());
  }

  int64_t world() const override { return launch_.world; }

  DeviceProperties device() const override {
    const FoundGpu& gpu = machine_.gpus[static_cast<size_t>(devices_[0])];
    return describe_device(gpu, settings_, launch_.world);
  }

  std::string description() const override {
    return fmt::format("{} x {} ({}), {}{}", launch_.world,
                       machine_.gpus[static_cast<size_t>(devices_[0])].name, launch_.launcher,
                       machine_.versions(), nccl_text());
  }

  bool first_process() const override { return launch_.rank == 0; }

  std::vector<int64_t> local_ranks() const override {
    std::vector<int64_t> ranks;
    for (int64_t r = 0; r < static_cast<int64_t>(devices_.size()); ++r)
      ranks.push_back(launch_.rank + r);
    return ranks;
  }

  void on_post(std::function<void(const std::string&)> receive) override {
    receive_ = std::move(receive);
  }

  void post(const std::string& bytes) override {
    require(job_ != nullptr, "bytes are posted while the cluster runs");
    post_store_->post(bytes);
  }

  std::vector<std::string> gather_bytes(const std::string& bytes) override {
    if (launch_.all_ranks_here) return {bytes};
    require(!ended_, "bytes are gathered before the cluster has run");
    if (!job_) connect();
    return store_->gather(fmt::format("gather {}", ++gathers_), launch_.rank, all_ranks(), bytes,
                          running_ ? kForever : options_.rendezvous_seconds);
  }

  std::vector<RankGpu> gpus() const override { return gpus_; }

  void run(const std::function<void(Backend&)>& program) override {
    gpus_.clear();
    tested_ = 0;
    met_ = launch_.all_ranks_here;
    if (!job_) connect();
    running_ = true;
    node_of_.assign(static_cast<size_t>(launch_.world), 0);
    if (launch_.all_ranks_here) {
      std::vector<std::thread> threads;
      for (int64_t r = 0; r < launch_.world; ++r)
        threads.emplace_back([this, r, &program] { run_rank(r, program); });
      for (std::thread& t : threads) t.join();
    } else {
      try {
        meet();
      } catch (const Error& error) {
        job_->fail({error.error_class(), error.what()});
      }
      if (!job_->failed()) run_rank(launch_.rank, program);
      if (!job_->failed()) leave();
    }
    std::optional<Failure> failure = job_->failure();
    running_ = false;
    ended_ = true;
    disconnect();
    if (failure && met_ && tested_ < devices_.size())
      failure->message += fmt::format(
          "\nNothing has been trained: the start-up self-test did not "
          "end. NCCL's settings{}",
          nccl_text().empty() ? " are its defaults" : nccl_text());
    if (failure) failure->raise();
  }

 private:
  static void check_scenario(const Scenario& s) {
    if (s.training_config.numerics != "full")
      throw Error(
          ErrorClass::configuration,
          fmt::format("training_config.numerics \"{}\" with --backend cuda: real GPUs always "
                      "compute; legal: full. Use --backend sim to model time without "
                      "computing",
                      s.training_config.numerics));
    if (s.training_config.dtype == "fp64")
      throw Error(ErrorClass::configuration,
                  "training_config.dtype \"fp64\" is for tests on the modelled GPU; legal with "
                  "--backend cuda: fp32, bf16, fp16");
  }

  std::string nccl_value(const char* name) const {
    const auto it = nccl_.find(name);
    return it == nccl_.end() ? "" : it->second;
  }

  std::string nccl_text() const {
    std::string text;
    for (const auto& [name, value] : nccl_variables()) text += fmt::format(", {}={}", name, value);
    return text;
  }

  std::vector<int64_t> all_ranks() const {
    std::vector<int64_t> ranks(static_cast<size_t>(launch_.world));
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int64_t>(r);
    return ranks;
  }

  // Which GPU each rank of this process uses.
  void choose_devices() {
    const auto count = static_cast<int64_t>(machine_.gpus.size());
    if (launch_.all_ranks_here) {
      if (launch_.world > count && !share_gpus_)
        throw Error(
            ErrorClass::configuration,
            fmt::format("distributed_config.world_size is {} but this machine shows {} GPU{}"
                        "{}. Start it on enough nodes with a launcher (docs/run-on-gpus.md), "
                        "or use fewer ranks with --gpus {}",
                        launch_.world, count, count == 1 ? "" : "s",
                        options_.environment("CUDA_VISIBLE_DEVICES")
                            ? " (CUDA_VISIBLE_DEVICES=" +
                                  *options_.environment("CUDA_VISIBLE_DEVICES") + ")"
                            : "",
                        count));
      for (int64_t r = 0; r < launch_.world; ++r) devices_.push_back(static_cast<int>(r % count));
      settings_.ranks_on_device = (launch_.world + count - 1) / count;
    } else {
      // Slurm may show each task its own GPU only.
      const bool own_only = count == 1 && launch_.local_world > 1;
      if (launch_.local_rank >= count && !own_only && !share_gpus_)
        throw Error(
            ErrorClass::configuration,
            fmt::format("rank {} is local rank {} but this node shows {} GPU{}: start at most "
                        "{} process{} on it, or show it more GPUs (CUDA_VISIBLE_DEVICES)",
                        launch_.rank, launch_.local_rank, count, count == 1 ? "" : "s", count,
                        count == 1 ? "" : "es"));
      devices_.push_back(static_cast<int>(own_only ? 0 : launch_.local_rank % count));
      if (share_gpus_) settings_.ranks_on_device = (launch_.local_world + count - 1) / count;
    }
    for (const int d : devices_) check_gpu(machine_.gpus[static_cast<size_t>(d)]);
  }

  void connect() {
    StoreSettings store;
    store.world = launch_.world;
    store.clock = options_.clock;
    // Who receives may be said later: nobody posts before all processes run.
    store.on_post = [this](const std::string& bytes) {
      if (receive_) receive_(bytes);
    };
    JobSettings job;
    job.timeout_seconds = timeout_seconds_;
    job.grace_seconds = options_.grace_seconds;
    job.clock = options_.clock;
    if (launch_.all_ranks_here) {
      store_ = make_local_store(store);
      post_store_ = store_.get();
      job_ = std::make_unique<Job>(job, *store_, *store_);
      return;
    }
    if (launch_.rank == 0) server_ = std::make_unique<StoreServer>(launch_, store);
    store_ = connect_store(launch_, options_.rendezvous_seconds, false);
    watch_store_ = connect_store(launch_, options_.rendezvous_seconds, true);
    post_store_ = store_.get();
    job.clock = [clock = options_.clock, offset = clock_offset()] { return clock() + offset; };
    job_ = std::make_unique<Job>(job, *store_, *watch_store_);
  }

  // What to add to this process's clock to have rank 0's: half the fastest round trip is the error.
  double clock_offset() {
    double best = kForever, offset = 0;
    for (int i = 0; i < 10; ++i) {
      const double before = options_.clock(), there = store_->clock(), after = options_.clock();
      if (after - before >= best) continue;
      best = after - before;
      offset = there - (before + after) / 2;
    }
    return offset;
  }

  // All processes tell who they are: nodes, versions, and no GPU twice.
  void meet() {
    Peer mine;
    mine.node = machine_.node_id;
    mine.host = host_name();
    mine.gpu = machine_.gpus[static_cast<size_t>(devices_[0])].uuid;
    mine.pci = machine_.gpus[static_cast<size_t>(devices_[0])].pci;
    mine.nccl = machine_.nccl;
    mine.interfaces = fmt::format("{}", fmt::join(interfaces_, ","));
    const auto all = store_->gather("start", launch_.rank, all_ranks(), mine.bytes(),
                                    options_.rendezvous_seconds);
    std::vector<Peer> peers;
    for (const std::string& bytes : all) peers.push_back(Peer::read(bytes));
    check_peers(peers, share_gpus_);
    node_of_ = nodes_of(peers);
    met_ = true;
    if (first_process() && options_.log)
      for (const std::string& line : interface_lines(peers)) options_.log(line);
  }

  void run_rank(int64_t rank, const std::function<void(Backend&)>& program) {
    const int device = devices_[static_cast<size_t>(rank - launch_.rank)];
    try {
      check_cuda(cudaSetDevice(device), "cudaSetDevice");
      RankPlace place;
      place.rank = rank;
      place.world = launch_.world;
      place.device = device;
      place.node_of = node_of_;
      CudaBackend backend(*job_, place, settings_);
      test_exchange(backend, options_.self_test_bytes);
      ++tested_;
      program(backend);
      backend.finish();
      look_at_gpu(rank, device);
    } catch (const Error& error) {
      job_->fail({error.error_class(), error.what()});
    } catch (const std::exception& error) {
      job_->fail({ErrorClass::internal, fmt::format("rank {}: {}", rank, error.what())});
    }
  }

  void look_at_gpu(int64_t rank, int device) {
    const FoundGpu& found = machine_.gpus[static_cast<size_t>(device)];
    RankGpu gpu = look_at(nvml_, found.pci);
    gpu.rank = rank;
    gpu.host = host_name();
    gpu.name = found.name;
    gpu.pci = found.pci;
    const std::lock_guard lock(gpus_mutex_);
    gpus_.push_back(std::move(gpu));
    std::sort(gpus_.begin(), gpus_.end(),
              [](const RankGpu& a, const RankGpu& b) { return a.rank < b.rank; });
  }

  // Nobody leaves before all have ended: rank 0 keeps the store.
  void leave() {
    try {
      const auto all =
          store_->gather("end", launch_.rank, all_ranks(), gpu_bytes(gpus_.at(0)), kForever);
      if (first_process()) {
        gpus_.clear();
        for (const std::string& bytes : all) gpus_.push_back(gpu_from(bytes));
      }
      store_->goodbye(launch_.rank);
    } catch (const Error& error) {
      job_->fail({error.error_class(), error.what()});
    }
  }

  void disconnect() {
    if (!launch_.all_ranks_here && job_->failed()) {
      // The others learn of the failure from rank 0's store: it stays until they have beaten once.
      try {
        store_->goodbye(launch_.rank);
      } catch (const Error&) {
        // Rank 0 is gone: so is the store.
      }
    }
    job_.reset();
    watch_store_.reset();
    store_.reset();
    server_.reset();
    post_store_ = nullptr;
  }

  CudaOptions options_;
  Launch launch_;
  double timeout_seconds_;
  std::map<std::string, std::string> nccl_;
  CudaSettings settings_;
  bool share_gpus_ = false;
  FoundMachine machine_;
  std::vector<int> devices_;  ///< by local rank of this process
  std::vector<std::string> interfaces_;
  std::vector<int64_t> node_of_;
  std::function<void(const std::string&)> receive_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<Store> store_, watch_store_;
  Store* post_store_ = nullptr;
  Nvml nvml_{options_.nvml_library};
  std::mutex gpus_mutex_;
  std::vector<RankGpu> gpus_;
  std::unique_ptr<Job> job_;
  bool running_ = false, ended_ = false;
  bool met_ = false;               ///< all processes have told who they are
  std::atomic<size_t> tested_{0};  ///< ranks of this process whose self-test has passed
  int64_t gathers_ = 0;
};

}  // namespace

std::unique_ptr<CudaCluster> make_cuda_cluster(const Scenario& scenario,
                                               const CudaOptions& options) {
  return std::make_unique<RealCluster>(scenario, options);
}

bool built_with_cuda() { return true; }

}  // namespace moetwin
