#include "backends/cuda/runtime/machine.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "backends/cuda/job/socket.h"
#include "backends/cuda/runtime/check.h"
#include "backends/cuda/runtime/peak.h"
#include "core/base/bytes.h"

namespace moetwin {
namespace {

constexpr int kOldestMajor = 8;

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string hex(const char* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i)
    text += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
  return text;
}

// Two containers of one node may have different host names; the boot id is the node's.
std::string node_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id.empty() ? host_name() : id;
}

}  // namespace

std::string FoundMachine::versions() const {
  return fmt::format("CUDA {}, driver for CUDA {}, NCCL {}.{}.{}", cuda_version(runtime),
                     cuda_version(driver), nccl / 10000, nccl / 100 % 100, nccl % 100);
}

FoundMachine look_at_machine() {
  FoundMachine machine;
  cudaRuntimeGetVersion(&machine.runtime);
  cudaDriverGetVersion(&machine.driver);
  check_nccl(ncclGetVersion(&machine.nccl), "ncclGetVersion", nullptr);
  machine.node_id = node_id();
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess || count == 0) {
    cudaGetLastError();
    const char* why = machine.driver == 0 ? "no NVIDIA driver is loaded"
                      : result == cudaErrorInsufficientDriver
                          ? "the NVIDIA driver is older than this build's CUDA"
                      : std::getenv("CUDA_VISIBLE_DEVICES") ? "CUDA_VISIBLE_DEVICES may hide them"
                                                            : cudaGetErrorString(result);
    throw Error(ErrorClass::configuration,
                fmt::format("--backend cuda: no GPU can be used on {}: {} (build: CUDA {}, driver: "
                            "{}). `moetwin doctor` says what is found. Without a GPU use --backend "
                            "sim",
                            host_name(), why, cuda_version(machine.runtime),
                            machine.driver ? "for CUDA " + cuda_version(machine.driver) : "none"));
  }
  for (int d = 0; d < count; ++d) {
    cudaDeviceProp p;
    check_cuda(cudaGetDeviceProperties(&p, d), "cudaGetDeviceProperties");
    char pci[32] = {};
    check_cuda(cudaDeviceGetPCIBusId(pci, sizeof pci, d), "cudaDeviceGetPCIBusId");
    machine.gpus.push_back({p.name, hex(p.uuid.bytes, sizeof p.uuid.bytes), pci, p.major, p.minor,
                            static_cast<int64_t>(p.totalGlobalMem)});
  }
  return machine;
}

void check_gpu(const FoundGpu& gpu) {
  if (gpu.major >= kOldestMajor) return;
  throw Error(
      ErrorClass::configuration,
      fmt::format("--backend cuda: {} ({}) has compute capability {}.{}; the kernels need 8.0 "
                  "or later (A100, H100, ...)",
                  gpu.name, gpu.pci, gpu.major, gpu.minor));
}

DeviceProperties describe_device(const FoundGpu& gpu, const CudaSettings& settings, int64_t world) {
  DeviceProperties p;
  p.name = gpu.name;
  p.memory_bytes = gpu.memory_bytes / settings.ranks_on_device;
  p.world = world;
  const Peak peak = peak_of(gpu.name, settings.dtype, settings.tf32);
  p.peak_flop_per_second = peak.flop_per_second;
  p.peak_source = peak.source;
  return p;
}

void set_nccl_environment(const std::map<std::string, std::string>& nccl) {
  for (const auto& [name, value] : nccl) ::setenv(name.c_str(), value.c_str(), 1);
}

std::vector<std::pair<std::string, std::string>> nccl_variables() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** e = environ; *e; ++e) {
    const std::string text = *e;
    const size_t equal = text.find('=');
    if (text.rfind("NCCL_", 0) == 0 && equal != std::string::npos)
      found.emplace_back(text.substr(0, equal), text.substr(equal + 1));
  }
  return found;
}

RankGpu look_at(const Nvml& nvml, const std::string& pci) {
  NvmlGpu now;
  nvml.sample(pci, now);
  RankGpu gpu;
  gpu.temperature_celsius = now.temperature_celsius;
  gpu.sm_clock_mhz = now.sm_clock_mhz;
  gpu.sm_clock_most_mhz = now.sm_clock_most_mhz;
  gpu.memory_clock_mhz = now.memory_clock_mhz;
  gpu.power_watts = now.power_watts;
  gpu.power_limit_watts = now.power_limit_watts;
  gpu.slowed_by = throttle_text(now.throttle_reasons);
  return gpu;
}

std::string gpu_bytes(const RankGpu& g) {
  return ByteWriter()
      .put(g.rank)
      .text(g.host)
      .text(g.name)
      .text(g.pci)
      .put(g.temperature_celsius)
      .put(g.sm_clock_mhz)
      .put(g.sm_clock_most_mhz)
      .put(g.memory_clock_mhz)
      .put(g.power_watts)
      .put(g.power_limit_watts)
      .text(g.slowed_by)
      .take();
}

RankGpu gpu_from(const std::string& bytes) {
  ByteReader r(bytes);
  RankGpu g;
  g.rank = r.get<int64_t>();
  for (std::string* s : {&g.host, &g.name, &g.pci}) *s = r.text();
  for (int* v :
       {&g.temperature_celsius, &g.sm_clock_mhz, &g.sm_clock_most_mhz, &g.memory_clock_mhz})
    *v = r.get<int>();
  g.power_watts = r.get<double>();
  g.power_limit_watts = r.get<double>();
  g.slowed_by = r.text();
  return g;
}

std::string Peer::bytes() const {
  return ByteWriter().text(node).text(host).text(gpu).text(pci).text(interfaces).put(nccl).take();
}

Peer Peer::read(const std::string& bytes) {
  ByteReader r(bytes);
  Peer p;
  for (std::string* s : {&p.node, &p.host, &p.gpu, &p.pci, &p.interfaces}) *s = r.text();
  p.nccl = r.get<int>();
  return p;
}

void check_peers(const std::vector<Peer>& peers, bool share_gpus) {
  std::map<std::string, size_t> owner;
  for (size_t r = 0; r < peers.size(); ++r) {
    if (peers[r].nccl != peers[0].nccl)
      throw Error(ErrorClass::configuration,
                  fmt::format("NCCL differs: rank 0 ({}) has {}, rank {} ({}) has {}. Install one "
                              "version on all nodes",
                              peers[0].host, peers[0].nccl, r, peers[r].host, peers[r].nccl));
    const auto [it, is_new] = owner.emplace(peers[r].node + " " + peers[r].gpu, r);
    if (!is_new && !share_gpus)
      throw Error(
          ErrorClass::configuration,
          fmt::format("ranks {} and {} both use GPU {} of {}: give each rank its own. LOCAL_RANK "
                      "must count from 0 on each node, or CUDA_VISIBLE_DEVICES show each "
                      "process another GPU",
                      it->second, r, peers[r].pci, peers[r].host));
  }
}

std::vector<int64_t> nodes_of(const std::vector<Peer>& peers) {
  std::map<std::string, int64_t> number;
  std::vector<int64_t> nodes;
  for (const Peer& p : peers)
    nodes.push_back(number.emplace(p.node, static_cast<int64_t>(number.size())).first->second);
  return nodes;
}

std::vector<std::string> interface_lines(const std::vector<Peer>& peers) {
  std::vector<std::string> lines;
  std::set<std::string> nodes;
  for (const Peer& p : peers)
    if (nodes.insert(p.node).second)
      lines.push_back(fmt::format("node {}: NCCL may use network interface {}", p.host,
                                  p.interfaces.empty() ? "none (one node only)" : p.interfaces));
  return lines;
}

}  // namespace moetwin
