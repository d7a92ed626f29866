#include "backends/cuda/probe/findings.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "backends/cuda/job/socket.h"
#include "backends/cuda/probe/library.h"

namespace moetwin {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<InfinibandPort> infiniband_ports(const std::string& root) {
  std::vector<InfinibandPort> ports;
  std::error_code ignored;
  for (const auto& device : fs::directory_iterator(root + "/sys/class/infiniband", ignored))
    for (const auto& port : fs::directory_iterator(device.path() / "ports", ignored)) {
      InfinibandPort p;
      p.device = device.path().filename().string();
      p.port = std::atoi(port.path().filename().c_str());
      p.state = first_line(port.path() / "state");  // "4: ACTIVE"
      if (const size_t colon = p.state.find(": "); colon != std::string::npos)
        p.state.erase(0, colon + 2);
      p.rate = first_line(port.path() / "rate");
      ports.push_back(p);
    }
  return ports;
}

int64_t meminfo(const std::string& root, const std::string& name) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    int64_t kilobytes = 0;
    words >> key >> kilobytes;
    if (key == name + ":") return kilobytes << 10;
  }
  return 0;
}

int64_t limit(decltype(RLIMIT_NOFILE) which) {
  rlimit l = {};
  if (::getrlimit(which, &l) != 0 || l.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<int64_t>(l.rlim_cur);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

Findings look_around(bool built_with_cuda, const std::string& root) {
  Findings f;
  f.host = host_name();
  f.built_with_cuda = built_with_cuda;
  const Nvml nvml;
  f.nvml = nvml.there();
  f.nvml_error = nvml.error();
  f.driver_version = nvml.driver_version();
  f.driver_cuda = nvml.cuda_version();
  f.gpus = nvml.gpus();
  f.visible_devices = variable("CUDA_VISIBLE_DEVICES");
  const Library nccl{"libnccl.so.2", "libnccl.so"};
  f.nccl_library = nccl.name();
  f.nccl_error = nccl.error();
  if (const auto version = nccl.function<int(int*)>("ncclGetVersion")) version(&f.nccl_version);
  f.interfaces = network_interfaces();
  f.socket_interface = variable("NCCL_SOCKET_IFNAME");
  f.infiniband = infiniband_ports(root);
  std::ifstream modules(root + "/proc/modules");
  for (std::string line; std::getline(modules, line);)
    f.peer_memory = f.peer_memory || line.rfind("nvidia_peermem ", 0) == 0 ||
                    line.rfind("nv_peer_mem ", 0) == 0;
  f.memory_bytes = meminfo(root, "MemTotal");
  f.memory_available_bytes = meminfo(root, "MemAvailable");
  struct statvfs shm = {};
  if (::statvfs((root + "/dev/shm").c_str(), &shm) == 0)
    f.shm_bytes = static_cast<int64_t>(shm.f_blocks) * static_cast<int64_t>(shm.f_frsize);
  f.locked_memory_bytes = limit(RLIMIT_MEMLOCK);
  f.open_files = limit(RLIMIT_NOFILE);
  for (char** e = environ; *e; ++e) {
    const std::string text = *e;
    if (const size_t equal = text.find('=');
        text.rfind("NCCL_", 0) == 0 && equal != std::string::npos)
      f.nccl_variables.emplace_back(text.substr(0, equal), text.substr(equal + 1));
  }
  return f;
}

}  // namespace moetwin
