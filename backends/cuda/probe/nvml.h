#pragma once
// GPUs as the driver's management library (NVML) reports them: loaded when asked for, so that a
// build without CUDA can say what is there too.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moetwin {

struct NvmlGpu {
  std::string name, uuid, pci;
  int64_t memory_bytes = 0, memory_used_bytes = 0;
  int major = 0, minor = 0;  ///< compute capability
  int nvlinks = 0;           ///< links that are up
  int nvlink_version = 0;    ///< 0: none
  bool mig = false;
  // Now; -1: not reported.
  int temperature_celsius = -1, sm_clock_mhz = -1, sm_clock_most_mhz = -1, memory_clock_mhz = -1;
  double power_watts = -1, power_limit_watts = -1;
  uint64_t throttle_reasons = 0;  ///< NVML's bits; 0 or 1 (idle): none that slows work
};

/// "power limit, thermal (software)" or empty: what of the bits slows work down.
std::string throttle_text(uint64_t reasons);

class Nvml {
 public:
  /// `library`: a name to load instead of the driver's, for tests.
  explicit Nvml(const std::string& library = "");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool there() const;
  /// Why not, in words.
  const std::string& error() const;
  std::string driver_version() const;
  /// 13000 for CUDA 13.0: the newest that the driver runs; 0: unknown.
  int cuda_version() const;
  std::vector<NvmlGpu> gpus() const;
  /// Current figures of the GPU with this PCI bus id ("0000:1B:00.0"); false when it is not found.
  bool sample(const std::string& pci, NvmlGpu& gpu) const;

 private:
  struct Functions;
  std::unique_ptr<Functions> nvml_;
};

}  // namespace moetwin
