#pragma once
// What was measured of a machine, or read from someone's log: the input of a fit.

#include <json/value.h>

#include <map>
#include <string>
#include <vector>

#include "core/device/communicator.h"
#include "core/device/op.h"

namespace moetwin {

/// One op, launched again and again on a device with nothing else to do.
struct KernelMeasurement {
  std::string what;      ///< "gemm bf16 4096x4096x4096"
  KernelList kernels;    ///< what it stands for (class moetwin)
  HostSizes group_rows;  ///< of its grouped products, which point here; null where there are none
  double seconds = 0;    ///< of one op on the device
};

/// One collective, alone on the machine.
struct CollectiveMeasurement {
  std::string what;    ///< "all_reduce of 8 on 1 node, 64 MiB"
  std::string series;  ///< of a table: one curve measured together; may be empty
  std::map<std::string, std::string> nccl;  ///< NCCL's variables that were set
  CollectiveKind kind = CollectiveKind::all_reduce;
  Group group;
  /// all_reduce, broadcast, send: of the tensor; all_gather, reduce_scatter: of the longer one;
  /// all_to_all_v: of the longest member's send rows, its own included.
  double bytes = 0;
  std::vector<double> pair_bytes;  ///< all_to_all_v: from member i to j at [i * n + j]
  double seconds = 0;
};

struct CopyMeasurement {
  bool to_device = true;
  double bytes = 0, seconds = 0;
};

struct Measurements {
  std::string machine;                          ///< a line: what was measured
  std::string device_name;                      ///< of a GPU; empty: unknown
  int64_t memory_bytes = 0, gpus_per_node = 0;  ///< 0: unknown
  DType dtype = DType::bf16;                    ///< whose peak is the published one
  double peak_flop_per_second = 0;              ///< published, of `dtype`; 0: unknown
  std::string peak_source;
  double launch_seconds = -1;  ///< host time of one kernel's launch; -1: unknown
  std::vector<KernelMeasurement> kernels;
  std::vector<CollectiveMeasurement> collectives;
  std::vector<CopyMeasurement> copies;
};

/// Schema "moetwin-measurements/1": all of it, with rates for a reader.
Json::Value measurements_json(const Measurements& measurements);
/// Back again. Throws Error(configuration) naming `file` and the key at fault.
Measurements measurements_from(const Json::Value& json, const std::string& file);

/// FLOP and bytes of all kernels of a measurement.
double flop_of(const KernelMeasurement& measurement);
double bytes_of(const KernelMeasurement& measurement);

/// What nccl-tests calls the bus bandwidth of a collective: bytes that every rank's port must carry
/// over seconds. `bytes` as in CollectiveMeasurement.
double bus_factor(CollectiveKind kind, int64_t members);

}  // namespace moetwin
