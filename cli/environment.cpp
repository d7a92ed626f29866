#include "cli/environment.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include "core/ops/isa.h"

namespace moetwin {

namespace {
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}
}  // namespace

Json::Value environment_json() {
  Json::Value e;
  e["program"] = "moetwin " MOETWIN_VERSION;
  utsname system{};
  if (uname(&system) == 0) {
    e["host"] = system.nodename;
    e["kernel"] = std::string(system.sysname) + " " + system.release;
  }
  e["processor"] = processor();
  e["cores"] = std::thread::hardware_concurrency();
  e["instruction_set"] = isa_name(best_isa());
  e["time_utc"] =
      fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                  std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()));
  return e;
}

bool is_terminal(const std::ostream& stream) {
  if (&stream == &std::cerr) return isatty(STDERR_FILENO) != 0;
  if (&stream == &std::cout) return isatty(STDOUT_FILENO) != 0;
  return false;
}

}  // namespace moetwin
