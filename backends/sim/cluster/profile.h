#pragma once
// A machine profile (scenarios/clusters/*.json): what one GPU, one node and the fabric can do.
// Every figure in the file is {"value": number, "source": "where it is from"}; sources are kept for
// reports. All rates are per direction.

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/sim/cluster/fabric.h"
#include "backends/sim/cluster/faults.h"
#include "backends/sim/cluster/nccl_profile.h"
#include "backends/sim/cost/corrections.h"
#include "core/base/units.h"
#include "core/device/op.h"

namespace moetwin {

inline constexpr int kKernelKinds = 9;
/// "gemm", "grouped_gemm", ...: the keys of efficiencies.
const char* kernel_kind_name(KernelKind kind);

/// How matrix products are cut (backends/sim/cost/tiles.h).
struct MatmulTiles {
  int64_t multiprocessors = 1;
  double efficiency = 1;  ///< share of the peak that a tile without edges sustains
  double edge = 0;        ///< a tile of r x c loses the factor 1 + edge (1/r + 1/c)
  Seconds tile_seconds;   ///< filling and draining one tile's pipeline
  double tail = 1;        ///< share of a last wave's idle time that is lost
  double bandwidth_efficiency = 1;
  Seconds fixed_seconds;  ///< start and end of the kernel
  Seconds split_seconds;  ///< more, when k is cut into parts
};

/// How fast one kind of fused attention kernel is (backends/sim/cost/attention.h).
struct AttentionRate {
  double efficiency_64 = 0, efficiency_128 = 0;  ///< share of the peak at heads of 64 and of 128
  double ramp = 0;      ///< keys' worth of time that a block of queries costs before and after
  double diagonal = 0;  ///< more of them where the diagonal is masked
};

struct GpuProfile {
  std::string name;
  Bytes memory;        ///< that the driver reports
  Bytes context;       ///< taken by a context with the kernels of the libraries in use
  Bytes communicator;  ///< taken by each communicator of more than one rank
  BytesPerSecond memory_bandwidth;
  /// Dense peaks by DType (fp32, bf16, fp16, fp64) of matrix products. `gpu.fp32_products: "tf32"`
  /// takes the TF32 peak for fp32.
  std::array<FlopPerSecond, 6> matmul_peak{};
  FlopPerSecond fp8_peak;                       ///< of products of FP8 operands; 0: it has none
  FlopPerSecond vector_peak, vector_peak_fp64;  ///< of everything else
  /// Share of the peaks that kernels of each kind reach, by KernelKind.
  std::array<double, kKernelKinds> compute_efficiency{}, bandwidth_efficiency{};
  /// Where the profile has it, products cost what their tiles do instead of the roofline.
  std::optional<MatmulTiles> tiles;
  std::optional<MatmulTiles> fp8_tiles;  ///< of FP8 products, where they have figures of their own
  /// By AttentionKernel; those without are priced by the roofline.
  std::array<std::optional<AttentionRate>, kAttentionKernels> attention;
  /// Multiprocessors that a collective's kernel takes from kernels beside it; 0: takes nothing, nor
  /// memory bandwidth.
  int64_t communication_multiprocessors = 0;
  /// Rate of tensor cores while a training goes on, over that of a single launch on a cool GPU:
  /// power limits their clock.
  double sustained = 1;
  Seconds kernel_seconds;           ///< fixed time on the device per kernel
  Seconds launch_overhead_seconds;  ///< host time per kernel launch
};

/// A kind of port: one direction of a link that a GPU or a node has.
struct LinkProfile {
  BytesPerSecond bandwidth;  ///< peak
  double efficiency = 1;     ///< share of it that large messages reach
  Seconds latency;           ///< of one step of a collective over it
  BytesPerSecond effective() const { return BytesPerSecond(bandwidth.value * efficiency); }
};

struct ClusterProfile {
  std::string name, path;
  std::string description;
  std::string text;  ///< the profile as JSON, whole: with all that its base gave
  GpuProfile gpu;
  int64_t gpus_per_node = 1;
  int64_t nics_per_node = 1;  ///< divides gpus_per_node or equals it; GPUs share them in order
  int64_t max_nodes = 0;      ///< 0: any number
  /// Without a switch, by GPUs of a node that a ring or tree joins: the share of a GPU's NVLinks
  /// that lie between them; others use all.
  std::map<int64_t, double> mesh_share;
  LinkProfile nvlink;  ///< of each GPU into the node's switch
  LinkProfile nic;
  LinkProfile pcie;  ///< GPU to host memory
  FabricProfile fabric;
  Seconds collective_seconds;  ///< fixed time of a collective where `nccl` does not say it
  std::optional<NcclProfile> nccl_section;
  /// `nccl_section`, or one protocol made of collective_seconds and the links' latencies.
  NcclProfile nccl() const {
    return nccl_section ? *nccl_section
                        : one_protocol(collective_seconds, nvlink.latency, nic.latency);
  }
  double price_per_gpu_hour = 0;
  std::string currency = "USD";
  std::map<int64_t, double> slow_ranks;  ///< rank -> factor on the time of its kernels
  std::vector<Fault> faults;
  std::vector<CorrectionEntry> corrections;
  /// Key path -> where its figure is from.
  std::map<std::string, std::string> sources;
};

/// Reads the profile `name` from the first of `directories` that has `<name>.json`, or the file
/// `name` when it names one. Throws Error(configuration) listing every fault with file, line, key,
/// value and rule; an unknown name lists the known ones. A profile with `"base": "NAME"` has the
/// figures of that one (looked for beside it, then in `directories`) wherever it gives none itself.
ClusterProfile read_cluster_profile(const std::string& name,
                                    const std::vector<std::string>& directories);
ClusterProfile parse_cluster_profile(const std::string& text, const std::string& name,
                                     const std::vector<std::string>& directories = {});

}  // namespace moetwin
