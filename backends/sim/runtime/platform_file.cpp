#include "backends/sim/runtime/platform_file.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <simgrid/s4u.hpp>
#include <sstream>
#include <vector>

#include "core/base/error.h"

namespace moetwin {
namespace {

namespace s4u = simgrid::s4u;

/// Digits count as numbers.
bool natural(const s4u::Host* x, const s4u::Host* y) {
  const std::string &a = x->get_name(), &b = y->get_name();
  const auto digits = [](const std::string& s, size_t at) {
    size_t end = at;
    while (end < s.size() && s[end] >= '0' && s[end] <= '9') ++end;
    return end - at;
  };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const size_t n = digits(a, i), m = digits(b, j);
    if (n > 0 && m > 0) {
      const auto p = std::stoull(a.substr(i, std::min<size_t>(n, 18)));
      const auto q = std::stoull(b.substr(j, std::min<size_t>(m, 18)));
      if (p != q) return p < q;
      i += n, j += m;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

/// "hosts H", then "link BANDWIDTH NAME" and "route A B LINK..." lines.
std::string table_text(const std::string& file) {
  std::vector<std::string> words = {"moetwin", "--log=root.thres:critical"};
  std::vector<char*> arguments;
  for (std::string& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  int count = static_cast<int>(words.size());
  s4u::Engine engine(&count, arguments.data());
  engine.load_platform(file);
  std::vector<s4u::Host*> hosts = engine.get_all_hosts();
  std::sort(hosts.begin(), hosts.end(), natural);
  std::map<const s4u::Link*, size_t> numbers;
  std::ostringstream links, routes;
  links.precision(17);
  for (size_t a = 0; a < hosts.size(); ++a)
    for (size_t b = 0; b < hosts.size(); ++b) {
      if (a == b) continue;
      std::vector<s4u::Link*> route;
      double latency = 0;
      hosts[a]->route_to(hosts[b], route, &latency);
      routes << "route " << a << " " << b;
      for (const s4u::Link* link : route) {
        if (link->get_sharing_policy() == s4u::Link::SharingPolicy::FATPIPE) continue;
        const auto [found, added] = numbers.emplace(link, numbers.size());
        if (added) links << "link " << link->get_bandwidth() << " " << link->get_name() << "\n";
        routes << " " << found->second;
      }
      routes << "\n";
    }
  return fmt::format("hosts {}\n", hosts.size()) + links.str() + routes.str();
}

/// What the child wrote; empty where it failed.
std::string in_child(const std::string& file) {
  int ends[2];
  if (pipe(ends) != 0) throw Error(ErrorClass::internal, "internal error: no pipe can be made");
  const pid_t child = fork();
  if (child < 0) throw Error(ErrorClass::internal, "internal error: no process can be made");
  if (child == 0) {
    close(ends[0]);
    // SimGrid aborts on some files: that is this child's end, and no handler's business.
    for (const int number : {SIGABRT, SIGSEGV}) std::signal(number, SIG_DFL);
    std::string text;
    try {
      text = table_text(file);
    } catch (...) {  // an empty answer says so
      _exit(1);
    }
    for (size_t at = 0; at < text.size();) {
      const ssize_t n = write(ends[1], text.data() + at, text.size() - at);
      if (n <= 0) _exit(1);
      at += static_cast<size_t>(n);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  std::vector<char> buffer(1 << 16);
  for (ssize_t n; (n = read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "";
}

}  // namespace

std::shared_ptr<const PlatformTable> read_platform_file(const std::string& file, int64_t nodes) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorClass::configuration, fmt::format("fabric.file: \"{}\" {}", file, what));
  };
  if (!std::filesystem::is_regular_file(file)) refuse("is no file");
  const std::string text = in_child(file);
  if (text.empty()) refuse("cannot be read by SimGrid as a platform whose hosts all have routes");
  auto table = std::make_shared<PlatformTable>();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "hosts") {
      words >> table->hosts;
      table->routes.resize(static_cast<size_t>(table->hosts * table->hosts));
    } else if (kind == "link") {
      words >> table->bandwidth.emplace_back();
      std::getline(words >> std::ws, table->names.emplace_back());
    } else {
      size_t a = 0, b = 0;
      words >> a >> b;
      auto& route = table->routes[a * static_cast<size_t>(table->hosts) + b];
      for (int32_t link; words >> link;) route.push_back(link);
    }
  }
  if (table->hosts < nodes)
    refuse(fmt::format("has {} hosts, but {} nodes are needed", table->hosts, nodes));
  return table;
}

}  // namespace moetwin
