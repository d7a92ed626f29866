// A library with NVML's names: two hot GPUs. Only what backends/cuda/probe/nvml.cpp calls.
#include <cstdio>
#include <cstring>

extern "C" {

struct FakeMemory {
  unsigned long long total, free, used;
};
struct FakePci {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.1");
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) { return *version = 13000, 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 2, 0; }
// A device is its index and one, as an address.
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<unsigned long>(index) + 1);
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned length) {
  std::snprintf(text, length, "Fake GPU");
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, FakePci* pci) {
  std::memset(pci, 0, sizeof *pci);
  std::snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0",
                static_cast<unsigned>(reinterpret_cast<unsigned long>(device)));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, FakeMemory* memory) {
  *memory = {80ULL << 30, 79ULL << 30, 1ULL << 30};
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9, *minor = 0;
  return 0;
}
int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* up) { return *up = link < 4, 0; }
int nvmlDeviceGetNvLinkVersion(void*, unsigned, unsigned* version) { return *version = 7, 0; }
int nvmlDeviceGetTemperature(void* device, unsigned, unsigned* celsius) {
  *celsius = 80 + static_cast<unsigned>(reinterpret_cast<unsigned long>(device));
  return 0;
}
int nvmlDeviceGetClockInfo(void*, unsigned kind, unsigned* mhz) {
  return *mhz = kind == 1 ? 1200 : 2600, 0;
}
int nvmlDeviceGetMaxClockInfo(void*, unsigned, unsigned* mhz) { return *mhz = 1980, 0; }
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { return *milliwatts = 650'500, 0; }
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  return *milliwatts = 700'000, 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  return *reasons = 0x20, 0;
}
}
