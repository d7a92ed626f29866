#include "backends/sim/export/platform_xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace moetwin {
namespace {

constexpr int64_t kMostPaired = 512;  ///< GPUs or nodes with a route for every pair

void refuse(const std::string& what, const char* of, int64_t have) {
  throw Error(ErrorClass::configuration,
              fmt::format("--platform: {} has a route for every pair of {}: at most {} {}, there "
                          "are {}",
                          what, of, kMostPaired, of, have));
}

class Xml {
 public:
  Xml(const Machine& machine, FlopPerSecond speed) : machine_(machine), speed_(speed) {}

  std::string write() {
    line(0, "<?xml version=\"1.0\"?>");
    line(0, "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">");
    line(0, "<platform version=\"4.1\">");
    if (machine_.fabric_links() == 0)
      by_node();
    else
      by_pair();
    line(0, "</platform>");
    return fmt::to_string(out_);
  }

 private:
  template <class... Arguments>
  void line(int depth, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    out_.append(std::string(static_cast<size_t>(2 * depth), ' '));
    fmt::format_to(std::back_inserter(out_), format, std::forward<Arguments>(arguments)...);
    out_.push_back('\n');
  }
  void host(int depth, int64_t rank) {
    line(depth, "<host id=\"gpu-{}\" speed=\"{:.17g}f\"/>", rank, speed_.value);
  }
  /// Half of a step's latency is on the way up, half on the way down.
  void link(int depth, int64_t port) {
    const double latency = machine_.is_nvlink(port) ? machine_.profile().nvlink.latency.value
                           : machine_.is_nic(port)  ? machine_.profile().nic.latency.value
                                                    : 0;
    line(depth, "<link id=\"{}\" bandwidth=\"{:.17g}Bps\" latency=\"{:.17g}s\"/>",
         machine_.port_name(port), machine_.bandwidth(port).value, latency / 2);
  }
  void route(int depth, const std::string& from, const std::string& to,
             const std::vector<int64_t>& ports) {
    line(depth, "<route src=\"{}\" dst=\"{}\" symmetrical=\"NO\">", from, to);
    for (const int64_t port : ports)
      line(depth + 1, "<link_ctn id=\"{}\"/>", machine_.port_name(port));
    line(depth, "</route>");
  }
  static std::string gpu(int64_t rank) { return fmt::format("gpu-{}", rank); }

  void by_node() {
    if (machine_.nodes() > kMostPaired) refuse("a SimGrid platform", "nodes", machine_.nodes());
    line(1, "<zone id=\"cluster\" routing=\"Full\">");
    const int64_t of_node = machine_.profile().gpus_per_node;
    for (int64_t node = 0; node < machine_.nodes(); ++node) {
      const int64_t begin = node * of_node, end = std::min(machine_.world(), begin + of_node);
      line(2, "<zone id=\"node-{}\" routing=\"Full\">", node);
      for (int64_t rank = begin; rank < end; ++rank) host(3, rank);
      line(3, "<router id=\"node-{}-out\"/>", node);
      for (const Direction d : {Direction::up, Direction::down}) {
        for (int64_t rank = begin; rank < end; ++rank) link(3, machine_.nvlink(rank, d));
        for (int64_t rank = begin; rank < end; ++rank)
          if (rank == begin || machine_.nic_of(rank) != machine_.nic_of(rank - 1))
            link(3, machine_.nic(rank, d));
      }
      const std::string out = fmt::format("node-{}-out", node);
      std::vector<int64_t> ports;
      for (int64_t a = begin; a < end; ++a) {
        for (int64_t b = begin; b < end; ++b) {
          if (a == b) continue;
          machine_.route(a, b, ports);
          route(3, gpu(a), gpu(b), ports);
        }
        route(3, gpu(a), out, {machine_.nic(a, Direction::up)});
        route(3, out, gpu(a), {machine_.nic(a, Direction::down)});
      }
      line(2, "</zone>");
    }
    if (machine_.nodes() > 1) fabric();
    line(1, "</zone>");
  }
  /// Nothing between NICs holds messages up: a link that is not shared, a thousand times as fast.
  void fabric() {
    line(2,
         "<link id=\"fabric\" bandwidth=\"{:.17g}Bps\" latency=\"0s\" sharing_policy=\"FATPIPE\"/>",
         1e3 * machine_.profile().nic.effective().value);
    for (int64_t a = 0; a < machine_.nodes(); ++a)
      for (int64_t b = a + 1; b < machine_.nodes(); ++b) {
        line(2,
             "<zoneRoute src=\"node-{0}\" dst=\"node-{1}\" gw_src=\"node-{0}-out\" "
             "gw_dst=\"node-{1}-out\">",
             a, b);
        line(3, "<link_ctn id=\"fabric\"/>");
        line(2, "</zoneRoute>");
      }
  }

  void by_pair() {
    if (machine_.world() > kMostPaired)
      refuse(fmt::format("a {} fabric that can hold messages up",
                         fabric_kind_name(machine_.profile().fabric.kind)),
             "GPUs", machine_.world());
    line(1, "<zone id=\"cluster\" routing=\"Full\">");
    for (int64_t rank = 0; rank < machine_.world(); ++rank) host(2, rank);
    for (int64_t port = 0; port < machine_.ports(); ++port) link(2, port);
    std::vector<int64_t> ports;
    for (int64_t a = 0; a < machine_.world(); ++a)
      for (int64_t b = 0; b < machine_.world(); ++b) {
        if (a == b) continue;
        machine_.route(a, b, ports);
        route(2, gpu(a), gpu(b), ports);
      }
    line(1, "</zone>");
  }

  const Machine& machine_;
  FlopPerSecond speed_;
  fmt::memory_buffer out_;
};

}  // namespace

std::string platform_xml(const Machine& machine, FlopPerSecond speed) {
  return Xml(machine, speed).write();
}

}  // namespace moetwin
