#pragma once
// What a machine has of what runs on GPUs need, and what follows: the text of `moetwin doctor`.

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/job/interfaces.h"
#include "backends/cuda/probe/nvml.h"

namespace moetwin {

struct InfinibandPort {
  std::string device, state, rate;  ///< "mlx5_0", "ACTIVE", "400 Gb/sec (4X NDR)"
  int port = 1;
};

/// Everything looked at; tests fill it in by hand.
struct Findings {
  std::string host;
  bool built_with_cuda = false;
  bool nvml = false;
  std::string nvml_error, driver_version;
  int driver_cuda = 0;
  std::vector<NvmlGpu> gpus;
  std::string visible_devices;  ///< CUDA_VISIBLE_DEVICES; empty: not set
  std::string nccl_library, nccl_error;
  int nccl_version = 0;
  std::vector<NetworkInterface> interfaces;
  std::string socket_interface;  ///< NCCL_SOCKET_IFNAME
  std::vector<InfinibandPort> infiniband;
  bool peer_memory = false;  ///< nvidia_peermem or nvidia-fs is loaded: NICs read GPU memory
  int64_t memory_bytes = 0, memory_available_bytes = 0;
  int64_t shm_bytes = 0;             ///< size of /dev/shm
  int64_t locked_memory_bytes = -1;  ///< ulimit -l; -1: unlimited
  int64_t open_files = 0;            ///< ulimit -n
  std::vector<std::pair<std::string, std::string>> nccl_variables;
};

/// Looks at this machine. `root`: where /proc, /sys and /dev are, for tests.
Findings look_around(bool built_with_cuda, const std::string& root = "");

enum class Level : uint8_t { good, warning, bad };
struct DoctorLine {
  Level level = Level::good;
  std::string text;
};
struct Diagnosis {
  std::vector<DoctorLine> found;    ///< what there is
  std::vector<DoctorLine> follows;  ///< what will work, what will not and why, with what to do
  bool can_run = false;             ///< --backend cuda will start here
};
Diagnosis diagnose(const Findings& findings);
std::string diagnosis_text(const Diagnosis& diagnosis);

}  // namespace moetwin
