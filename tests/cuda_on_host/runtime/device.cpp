#include "tests/cuda_on_host/runtime/device.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tests/cuda_on_host/runtime/settings.h"

namespace moetwin::emulated {
namespace {

constexpr int kMostDevices = 256;
thread_local int t_device = 0;
thread_local cudaError_t t_last = cudaSuccess;
std::array<std::atomic<int>, kMostDevices> g_failed{};

template <class T>
void from_environment(const char* name, T& value) {
  if (const char* text = std::getenv(name)) value = static_cast<T>(std::strtod(text, nullptr));
}

/// "2,0": as far as every number is one of a GPU, as CUDA reads it.
std::vector<int> visible_devices(const std::string& text, int gpus) {
  std::vector<int> devices;
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    char* end = nullptr;
    const long device = std::strtol(item.c_str(), &end, 10);
    if (end == item.c_str() || *end != '\0' || device < 0 || device >= gpus) break;
    devices.push_back(static_cast<int>(device));
  }
  return devices;
}

Settings read_settings() {
  Settings s;
  from_environment("MOETWIN_EMULATED_GPUS", s.gpus);
  from_environment("MOETWIN_EMULATED_MEMORY", s.memory_bytes);
  from_environment("MOETWIN_EMULATED_SEED", s.seed);
  from_environment("MOETWIN_EMULATED_DELAY_CHANCE", s.delay_chance);
  from_environment("MOETWIN_EMULATED_DELAY_MICROSECONDS", s.delay_microseconds);
  from_environment("MOETWIN_EMULATED_NCCL_STALLS_ABOVE", s.nccl_stalls_above);
  if (const char* text = std::getenv("CUDA_VISIBLE_DEVICES"))
    s.visible = visible_devices(text, s.gpus);
  return s;
}

}  // namespace

Settings& settings() {
  static Settings s = read_settings();
  return s;
}

int current_device() { return t_device; }

cudaError_t misuse(cudaError_t error, const std::string& what) {
  std::fprintf(stderr, "emulated CUDA: %s: %s\n", cudaGetErrorName(error), what.c_str());
  t_last = error;
  return error;
}

void fail_device(int device, const std::string& what) {
  std::fprintf(stderr, "emulated CUDA: device %d failed: %s\n", device, what.c_str());
  g_failed[static_cast<size_t>(device)] = cudaErrorLaunchFailure;
}

cudaError_t device_error(int device) {
  return static_cast<cudaError_t>(g_failed[static_cast<size_t>(device)].load());
}

}  // namespace moetwin::emulated

using namespace moetwin::emulated;

namespace {
int devices() {
  const Settings& s = settings();
  return s.visible ? static_cast<int>(s.visible->size()) : s.gpus;
}
bool exists(int device) { return device >= 0 && device < devices(); }
/// Which of the machine's GPUs the process knows as `device`.
int gpu(int device) {
  const Settings& s = settings();
  return s.visible ? s.visible->at(static_cast<size_t>(device)) : device;
}
}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices();
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) return misuse(cudaErrorInvalidDevice, "no such device");
  t_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = t_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (!exists(device)) return misuse(cudaErrorInvalidDevice, "no such device");
  *prop = {};
  std::snprintf(prop->name, sizeof prop->name, "Emulated GPU");
  // Other processes have the same GPUs, so the process is no part of the id.
  prop->uuid.bytes[0] = static_cast<char>(gpu(device) + 1);
  prop->totalGlobalMem = static_cast<size_t>(settings().memory_bytes);
  prop->sharedMemPerBlock = 48 << 10;
  prop->sharedMemPerBlockOptin = 163 << 10;
  prop->sharedMemPerMultiprocessor = 164 << 10;
  prop->warpSize = 32;
  prop->maxThreadsPerBlock = 1024;
  prop->maxThreadsPerMultiProcessor = 2048;
  prop->major = 8;
  prop->minor = 0;
  prop->multiProcessorCount = 4;
  prop->pciBusID = gpu(device) + 1;
  prop->memoryBusWidth = 5120;
  prop->l2CacheSize = 40 << 20;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  cudaDeviceProp prop;
  if (const cudaError_t e = cudaGetDeviceProperties(&prop, device)) return e;
  switch (attr) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(prop.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(prop.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrWarpSize:
      *value = prop.warpSize;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = prop.multiProcessorCount;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = prop.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = prop.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = prop.minor;
      break;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (!exists(device)) return misuse(cudaErrorInvalidDevice, "no such device");
  std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0", gpu(device) + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = t_last;
  t_last = cudaSuccess;
  return error ? error : device_error(t_device);
}

cudaError_t cudaPeekAtLastError() { return t_last ? t_last : device_error(t_device); }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    case cudaErrorUnknown:
      return "cudaErrorUnknown";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
