#include <fmt/format.h>

#include <algorithm>

#include "backends/cuda/probe/findings.h"
#include "core/base/error.h"
#include "core/base/units.h"

namespace moetwin {
namespace {

constexpr int kOldestMajor = 8;
constexpr int kOldestNccl = 22000;
/// NCCL's buffers between two processes of a node that cannot reach each other's GPU take some 10
/// MB a pair; Docker's default of 64 MiB for /dev/shm does not hold them for eight GPUs.
constexpr int64_t kShmPerGpu = int64_t{64} << 20;

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string nccl_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

class Doctor {
 public:
  explicit Doctor(const Findings& f) : f_(f) {}

  Diagnosis examine() {
    driver();
    gpus();
    nccl();
    network();
    host();
    verdict();
    return std::move(d_);
  }

 private:
  void found(Level level, std::string text) { d_.found.push_back({level, std::move(text)}); }
  void follows(Level level, std::string text) { d_.follows.push_back({level, std::move(text)}); }

  void driver() {
    if (f_.nvml)
      found(Level::good, fmt::format("driver {} (for CUDA up to {}.{})", f_.driver_version,
                                     f_.driver_cuda / 1000, f_.driver_cuda % 1000 / 10));
    else
      found(Level::bad, "no NVIDIA driver: " + f_.nvml_error);
    found(f_.built_with_cuda ? Level::good : Level::bad,
          f_.built_with_cuda ? "this program was built with CUDA"
                             : "this program was built without CUDA");
  }

  void gpus() {
    if (f_.nvml && f_.gpus.empty()) found(Level::bad, "the driver shows no GPU");
    for (const NvmlGpu& g : f_.gpus) {
      const bool old = g.major > 0 && g.major < kOldestMajor;
      std::string text =
          fmt::format("{} at {}: {}, {} in use, sm_{}{}", g.name, g.pci, bytes_text(g.memory_bytes),
                      bytes_text(g.memory_used_bytes), g.major, g.minor);
      text += g.nvlinks ? fmt::format(", {} NVLinks", g.nvlinks) : ", no NVLink";
      if (g.temperature_celsius >= 0) text += fmt::format(", {} C", g.temperature_celsius);
      if (g.power_watts >= 0)
        text += fmt::format(", {:.0f} of {:.0f} W", g.power_watts, g.power_limit_watts);
      const std::string throttled = throttle_text(g.throttle_reasons);
      if (!throttled.empty()) text += ", slowed down by: " + throttled;
      if (g.mig) text += ", MIG is on";
      found(old ? Level::bad : throttled.empty() && !g.mig ? Level::good : Level::warning, text);
      usable_ += !old;
    }
    if (!f_.visible_devices.empty())
      found(Level::warning, "CUDA_VISIBLE_DEVICES=" + f_.visible_devices);
  }

  void nccl() {
    if (f_.nccl_version == 0)
      found(Level::bad, "no NCCL: " + f_.nccl_error);
    else
      found(f_.nccl_version >= kOldestNccl ? Level::good : Level::bad,
            fmt::format("NCCL {} ({})", nccl_text(f_.nccl_version), f_.nccl_library));
    for (const auto& [name, value] : f_.nccl_variables)
      found(Level::warning,
            fmt::format("{}={} is set: NCCL does not decide this itself", name, value));
  }

  void network() {
    for (const NetworkInterface& i : f_.interfaces)
      if (!i.loopback)
        found(Level::good, fmt::format("network interface {}: {}{}", i.name, i.up ? "up" : "down",
                                       i.address.empty() ? "" : ", " + i.address));
    for (const InfinibandPort& p : f_.infiniband) {
      const bool active = p.state.find("ACTIVE") != std::string::npos;
      active_ports_ += active;
      found(active ? Level::good : Level::warning,
            fmt::format("RDMA NIC {} port {}: {}, {}", p.device, p.port, p.state, p.rate));
    }
    if (f_.infiniband.empty()) found(Level::good, "no RDMA NIC (InfiniBand or RoCE)");
  }

  void host() {
    found(Level::good, fmt::format("host memory {}, {} available", bytes_text(f_.memory_bytes),
                                   bytes_text(f_.memory_available_bytes)));
    found(
        Level::good,
        fmt::format("/dev/shm {}, locked memory {}, open files {}", bytes_text(f_.shm_bytes),
                    f_.locked_memory_bytes < 0 ? std::string("unlimited")
                                               : bytes_text(f_.locked_memory_bytes),
                    f_.open_files < 0 ? std::string("unlimited") : std::to_string(f_.open_files)));
  }

  void verdict() {
    follows(Level::good, "--backend sim works: it needs no GPU");
    std::vector<std::string> missing;
    if (!f_.built_with_cuda)
      missing.push_back(
          "build anew where the CUDA toolkit (12.5 or later) and NCCL with headers are "
          "installed and nvcc is on the PATH (rm -rf build; ./moetwin --help)");
    if (!f_.nvml)
      missing.push_back(
          "load the NVIDIA driver (nvidia-smi must work); in a container, start it with "
          "GPUs (--gpus all)");
    else if (usable_ == 0)
      missing.push_back("a GPU of compute capability 8.0 or later (A100, H100, ...)");
    if (f_.nccl_version < kOldestNccl)
      missing.push_back(f_.nccl_version == 0 ? "install NCCL (libnccl2, 2.20 or later)"
                                             : "update NCCL to 2.20 or later");
    d_.can_run = missing.empty();
    for (const std::string& m : missing) follows(Level::bad, "--backend cuda will not work: " + m);
    if (d_.can_run)
      follows(Level::good, fmt::format("--backend cuda works with up to {} rank{} on this node",
                                       usable_, usable_ == 1 ? "" : "s"));
    if (f_.gpus.empty()) return;
    if (std::any_of(f_.gpus.begin(), f_.gpus.end(), [](const NvmlGpu& g) { return g.mig; }))
      follows(Level::warning,
              "with MIG on, NCCL cannot join parts of one GPU: use one rank per whole "
              "GPU, or switch MIG off");
    const auto linked = std::count_if(f_.gpus.begin(), f_.gpus.end(),
                                      [](const NvmlGpu& g) { return g.nvlinks > 0; });
    if (f_.gpus.size() > 1 && linked == 0)
      follows(Level::warning,
              "no NVLink: exchanges between GPUs of this node go over PCIe, some ten "
              "times slower; keep expert parallelism small");
    else if (f_.gpus.size() > 1 && linked < static_cast<std::ptrdiff_t>(f_.gpus.size()))
      follows(Level::warning,
              fmt::format("only {} of {} GPUs have NVLinks that are up", linked, f_.gpus.size()));
    const auto shm_wanted = static_cast<int64_t>(f_.gpus.size()) * kShmPerGpu;
    if (f_.gpus.size() > 1 && f_.shm_bytes < shm_wanted)
      follows(Level::bad,
              fmt::format("/dev/shm of {} is too small for NCCL between {} GPUs: give the "
                          "container at least {} (docker run --shm-size, or --ipc=host)",
                          bytes_text(f_.shm_bytes), f_.gpus.size(), bytes_text(shm_wanted)));
    try {
      selected_interfaces(f_.socket_interface, f_.interfaces);
    } catch (const Error& error) {
      follows(Level::bad, error.what());
    }
    if (active_ports_ == 0)
      follows(Level::warning,
              "several nodes: no active RDMA port, so NCCL takes TCP sockets: expect 1 "
              "to 10 GB/s per node");
    else if (!f_.peer_memory)
      follows(Level::warning,
              "several nodes: nvidia_peermem is not loaded; unless the driver has "
              "dma-buf, traffic to other nodes goes through host memory");
    if (active_ports_ > 0 && f_.locked_memory_bytes >= 0)
      follows(Level::bad,
              "RDMA needs locked memory: set ulimit -l unlimited (in a container "
              "--ulimit memlock=-1)");
  }

  const Findings& f_;
  Diagnosis d_;
  int usable_ = 0, active_ports_ = 0;
};

}  // namespace

Diagnosis diagnose(const Findings& findings) { return Doctor(findings).examine(); }

std::string diagnosis_text(const Diagnosis& diagnosis) {
  const auto mark = [](Level level) {
    return level == Level::good ? "ok   " : level == Level::warning ? "note " : "BAD  ";
  };
  std::string text = "Found:\n";
  for (const DoctorLine& l : diagnosis.found)
    text += fmt::format("  {}{}\n", mark(l.level), l.text);
  text += "What follows:\n";
  for (const DoctorLine& l : diagnosis.follows)
    text += fmt::format("  {}{}\n", mark(l.level), l.text);
  return text;
}

}  // namespace moetwin
