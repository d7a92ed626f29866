#include "backends/cuda/probe/nvml.h"

#include <cstring>

#include "backends/cuda/probe/library.h"

namespace moetwin {
namespace {

// The part of NVML's C interface that is used, from its public documentation: nvml.h is not on
// machines that have only the driver.
using Device = struct nvmlDevice*;
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct PciInfo {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};
constexpr unsigned kTemperatureGpu = 0, kClockSm = 1, kClockMemory = 2;
constexpr unsigned kMostLinks = 18;

// "00000000:1B:00.0" as NVML has it, or "0000:1b:00.0" as CUDA has it, without the domain's length.
std::string short_pci(const std::string& id) {
  const size_t colon = id.find(':');
  std::string text = colon == std::string::npos ? id : id.substr(colon);
  for (char& c : text)
    if (c >= 'a' && c <= 'f') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

}  // namespace

struct Nvml::Functions {
  explicit Functions(const std::string& name)
      : library{name.empty() ? "libnvidia-ml.so.1" : name.c_str()} {
    const auto load = [&](auto& function, const char* symbol) {
      function =
          library.function<std::remove_pointer_t<std::remove_reference_t<decltype(function)>>>(
              symbol);
    };
    load(init, "nvmlInit_v2");
    load(shutdown, "nvmlShutdown");
    load(driver_version, "nvmlSystemGetDriverVersion");
    load(cuda_version, "nvmlSystemGetCudaDriverVersion_v2");
    load(count, "nvmlDeviceGetCount_v2");
    load(handle, "nvmlDeviceGetHandleByIndex_v2");
    load(name_of, "nvmlDeviceGetName");
    load(uuid, "nvmlDeviceGetUUID");
    load(pci, "nvmlDeviceGetPciInfo_v3");
    load(memory, "nvmlDeviceGetMemoryInfo");
    load(capability, "nvmlDeviceGetCudaComputeCapability");
    load(link_state, "nvmlDeviceGetNvLinkState");
    load(link_version, "nvmlDeviceGetNvLinkVersion");
    load(mig_mode, "nvmlDeviceGetMigMode");
    load(temperature, "nvmlDeviceGetTemperature");
    load(clock, "nvmlDeviceGetClockInfo");
    load(most_clock, "nvmlDeviceGetMaxClockInfo");
    load(power, "nvmlDeviceGetPowerUsage");
    load(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    load(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons");
    if (!library)
      error = library.error();
    else if (!init || init() != 0)
      error =
          "the NVIDIA driver's management library is there but does not start: no driver is "
          "loaded, or it is of another version than the library";
    else
      ready = true;
  }
  ~Functions() {
    if (ready && shutdown) shutdown();
  }

  void fill_current(Device device, NvmlGpu& gpu) const {
    unsigned value = 0;
    if (temperature && temperature(device, kTemperatureGpu, &value) == 0)
      gpu.temperature_celsius = static_cast<int>(value);
    if (clock && clock(device, kClockSm, &value) == 0) gpu.sm_clock_mhz = static_cast<int>(value);
    if (clock && clock(device, kClockMemory, &value) == 0)
      gpu.memory_clock_mhz = static_cast<int>(value);
    if (most_clock && most_clock(device, kClockSm, &value) == 0)
      gpu.sm_clock_most_mhz = static_cast<int>(value);
    if (power && power(device, &value) == 0) gpu.power_watts = value / 1000.0;
    if (power_limit && power_limit(device, &value) == 0) gpu.power_limit_watts = value / 1000.0;
    unsigned long long reasons = 0;
    if (throttle && throttle(device, &reasons) == 0) gpu.throttle_reasons = reasons;
    MemoryInfo info;
    if (memory && memory(device, &info) == 0) {
      gpu.memory_bytes = static_cast<int64_t>(info.total);
      gpu.memory_used_bytes = static_cast<int64_t>(info.used);
    }
  }

  NvmlGpu look(Device device) const {
    NvmlGpu gpu;
    char text[96] = {};
    if (name_of && name_of(device, text, sizeof text) == 0) gpu.name = text;
    if (uuid && uuid(device, text, sizeof text) == 0) gpu.uuid = text;
    PciInfo place = {};
    if (pci && pci(device, &place) == 0) gpu.pci = place.id;
    if (capability) capability(device, &gpu.major, &gpu.minor);
    for (unsigned link = 0; link_state && link < kMostLinks; ++link) {
      unsigned up = 0;
      if (link_state(device, link, &up) != 0) break;
      if (!up) continue;
      ++gpu.nvlinks;
      unsigned version = 0;
      if (link_version && link_version(device, link, &version) == 0)
        gpu.nvlink_version = static_cast<int>(version);
    }
    unsigned now = 0, pending = 0;
    if (mig_mode && mig_mode(device, &now, &pending) == 0) gpu.mig = now != 0;
    fill_current(device, gpu);
    return gpu;
  }

  Library library;
  bool ready = false;
  std::string error;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*cuda_version)(int*) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Device*) = nullptr;
  int (*name_of)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;
  int (*memory)(Device, MemoryInfo*) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*link_state)(Device, unsigned, unsigned*) = nullptr;
  int (*link_version)(Device, unsigned, unsigned*) = nullptr;
  int (*mig_mode)(Device, unsigned*, unsigned*) = nullptr;
  int (*temperature)(Device, unsigned, unsigned*) = nullptr;
  int (*clock)(Device, unsigned, unsigned*) = nullptr;
  int (*most_clock)(Device, unsigned, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;
  int (*power_limit)(Device, unsigned*) = nullptr;
  int (*throttle)(Device, unsigned long long*) = nullptr;
};

Nvml::Nvml(const std::string& library) : nvml_(std::make_unique<Functions>(library)) {}
Nvml::~Nvml() = default;
bool Nvml::there() const { return nvml_->ready; }
const std::string& Nvml::error() const { return nvml_->error; }

std::string Nvml::driver_version() const {
  char text[96] = {};
  if (nvml_->ready && nvml_->driver_version) nvml_->driver_version(text, sizeof text);
  return text;
}

int Nvml::cuda_version() const {
  int version = 0;
  if (nvml_->ready && nvml_->cuda_version) nvml_->cuda_version(&version);
  return version;
}

std::vector<NvmlGpu> Nvml::gpus() const {
  std::vector<NvmlGpu> found;
  unsigned count = 0;
  if (!nvml_->ready || !nvml_->count || !nvml_->handle || nvml_->count(&count) != 0) return found;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (nvml_->handle(i, &device) == 0) found.push_back(nvml_->look(device));
  }
  return found;
}

bool Nvml::sample(const std::string& pci, NvmlGpu& gpu) const {
  unsigned count = 0;
  if (!nvml_->ready || !nvml_->count || !nvml_->handle || !nvml_->pci || nvml_->count(&count) != 0)
    return false;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    PciInfo place = {};
    if (nvml_->handle(i, &device) != 0 || nvml_->pci(device, &place) != 0 ||
        short_pci(place.id) != short_pci(pci))
      continue;
    nvml_->fill_current(device, gpu);
    return true;
  }
  return false;
}

std::string throttle_text(uint64_t reasons) {
  constexpr struct {
    uint64_t bit;
    const char* text;
  } kReasons[] = {{0x04, "power limit"},
                  {0x08, "hardware slowdown"},
                  {0x20, "thermal (software)"},
                  {0x40, "thermal (hardware)"},
                  {0x80, "power brake"}};
  std::string text;
  for (const auto& r : kReasons)
    if (reasons & r.bit) text += (text.empty() ? "" : ", ") + std::string(r.text);
  return text;
}

}  // namespace moetwin
