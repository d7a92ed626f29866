#pragma once
// What this process finds of CUDA, NCCL and GPUs, and what the processes of a job tell each other
// of theirs.

#include <map>
#include <string>
#include <vector>

#include "backends/cuda/cluster.h"
#include "backends/cuda/probe/nvml.h"
#include "backends/cuda/runtime/cuda_backend.h"
#include "core/device/backend.h"

namespace moetwin {

struct FoundGpu {
  std::string name, uuid, pci;
  int major = 0, minor = 0;
  int64_t memory_bytes = 0;
};

struct FoundMachine {
  std::vector<FoundGpu> gpus;
  int driver = 0, runtime = 0, nccl = 0;
  std::string node_id;  ///< the same for all processes of one node
  /// "CUDA 13.0, driver for CUDA 13.0, NCCL 2.28.9"
  std::string versions() const;
};

/// Throws Error(configuration) with what to do when there is no GPU or its driver is too old.
FoundMachine look_at_machine();
/// Throws Error(configuration) when the kernels cannot run on it.
void check_gpu(const FoundGpu& gpu);
DeviceProperties describe_device(const FoundGpu& gpu, const CudaSettings& settings, int64_t world);

/// Puts the scenario's `nccl` keys into the environment, where they win; before any NCCL call.
void set_nccl_environment(const std::map<std::string, std::string>& nccl);
/// Every NCCL_* variable that is set.
std::vector<std::pair<std::string, std::string>> nccl_variables();

/// The current figures of the GPU at this PCI address; only those are filled in.
RankGpu look_at(const Nvml& nvml, const std::string& pci);
std::string gpu_bytes(const RankGpu& gpu);
RankGpu gpu_from(const std::string& bytes);

/// One process of the job, as it tells the others.
struct Peer {
  std::string node, host, gpu, pci, interfaces;
  int nccl = 0;
  std::string bytes() const;
  static Peer read(const std::string& bytes);
};
/// Throws Error(configuration): two ranks on one GPU; NCCL versions that differ.
void check_peers(const std::vector<Peer>& peers, bool share_gpus);
/// Node of each rank, numbered in order of appearance.
std::vector<int64_t> nodes_of(const std::vector<Peer>& peers);
/// "node n7 uses network interfaces eno1 and ib0", one line per node where nodes differ, else one.
std::vector<std::string> interface_lines(const std::vector<Peer>& peers);

}  // namespace moetwin
