#include "tests/cuda_on_host/backend/ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "backends/cuda/job/socket.h"
#include "core/base/bytes.h"
#include "core/base/error.h"

namespace moetwin::test {
namespace {

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    if (it == variables.end()) return std::nullopt;
    return it->second;
  };
}

CudaCluster*& the_cluster() {
  static CudaCluster* cluster = nullptr;
  return cluster;
}

// What came of running the program on the ranks of this process.
std::vector<Ended> run_here(const Scenario& scenario, const RankProgram& program,
                            const CudaOptions& options, const AroundRun& around) {
  std::vector<Ended> ended;
  std::mutex mutex;
  std::map<int64_t, std::string> texts;
  Ended error;
  try {
    const auto cluster = make_cuda_cluster(scenario, options);
    ended.resize(cluster->local_ranks().size());
    the_cluster() = cluster.get();
    if (around.before) around.before(*cluster);
    cluster->run([&](Backend& device) {
      std::string text = program(device);
      const std::lock_guard lock(mutex);
      texts[device.properties().rank] = std::move(text);
    });
    size_t i = 0;
    for (const int64_t rank : cluster->local_ranks()) ended[i++] = {0, 0, texts[rank], 0};
    if (around.after) ended[0].text += around.after(*cluster);
    return ended;
  } catch (const Error& e) {
    error.exit_code = e.exit_code();
    error.text = e.what();
  } catch (const std::exception& e) {
    error.exit_code = 99;
    error.text = e.what();
  }
  if (ended.empty()) ended.resize(1);
  for (Ended& e : ended) e = error;
  return ended;
}

struct Child {
  pid_t pid = -1;
  int pipe = -1;
  std::string bytes;
  bool open = true;
};

// Runs in a child of fork(): ends the process with the first rank's exit code.
[[noreturn]] void run_child(int pipe, const Scenario& scenario, const RankProgram& program,
                            const CudaOptions& options, const AroundRun& around) {
  const std::vector<Ended> ended = run_here(scenario, program, options, around);
  ByteWriter writer;
  writer.put(static_cast<uint64_t>(ended.size()));
  for (const Ended& e : ended) writer.put(e.exit_code).text(e.text);
  const std::string bytes = writer.take();
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::write(pipe, bytes.data() + sent, bytes.size() - sent);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  ::_exit(ended[0].exit_code);
}

Child start(const Scenario& scenario, const RankProgram& program, const CudaOptions& options,
            const AroundRun& around) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ends[0]);
    ::setenv("MOETWIN_IN_CHILD", "1", 1);
    run_child(ends[1], scenario, program, options, around);
  }
  ::close(ends[1]);
  Child child;
  child.pid = pid;
  child.pipe = ends[0];
  return child;
}

std::vector<Ended> wait_for(std::vector<Child> children, double patience) {
  const double begin = seconds_now();
  std::vector<Ended> ended;
  for (Child& child : children) {
    char piece[1 << 16];
    while (child.open) {
      pollfd p = {child.pipe, POLLIN, 0};
      const double left = patience - (seconds_now() - begin);
      if (left <= 0 || ::poll(&p, 1, static_cast<int>(left * 1000) + 1) == 0) {
        ::kill(child.pid, SIGKILL);
        break;
      }
      const ssize_t n = ::read(child.pipe, piece, sizeof piece);
      if (n > 0) child.bytes.append(piece, static_cast<size_t>(n));
      child.open = n > 0;
    }
    int status = 0;
    ::waitpid(child.pid, &status, 0);
    ::close(child.pipe);
    const double seconds = seconds_now() - begin;
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (child.bytes.empty()) {
      ended.push_back({code, signal, "", seconds});
      continue;
    }
    ByteReader reader(child.bytes);
    for (auto n = reader.get<uint64_t>(); n > 0; --n) {
      Ended e;
      e.exit_code = reader.get<int>();
      e.text = reader.text();
      e.seconds = seconds;
      ended.push_back(e);
    }
  }
  return ended;
}

}  // namespace

CudaCluster* running_cluster() { return the_cluster(); }

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Scenario world_of(int64_t world) {
  Scenario s;
  s.distributed_config.world_size = world;
  s.distributed_config.data_parallel_size = world;
  s.distributed_config.timeout_seconds = 20;
  return s;
}

CudaOptions emulated_options() {
  CudaOptions options;
  options.clock = seconds_now;
  options.environment = environment_of({});
  options.rendezvous_seconds = 60;
  options.self_test_bytes = 65536;  // the emulation copies slowly
  return options;
}

std::vector<Ended> as_threads(const Scenario& scenario, const RankProgram& program,
                              CudaOptions options, const AroundRun& around) {
  std::vector<Child> children;
  children.push_back(start(scenario, program, options, around));
  std::vector<Ended> ended = wait_for(std::move(children), 100);
  // An error ends all ranks alike.
  while (ended.size() < static_cast<size_t>(scenario.distributed_config.world_size))
    ended.push_back(ended[0]);
  return ended;
}

std::vector<Ended> as_processes(
    const Scenario& scenario, const RankProgram& program, CudaOptions options,
    const std::function<void(int64_t, std::map<std::string, std::string>&)>& change,
    double patience, const AroundRun& around) {
  const int64_t world = scenario.distributed_config.world_size;
  std::string error;
  int port = 0;
  {
    const Socket free_port = listen_at(0, error);
    port = port_of(free_port);
  }
  std::vector<Child> children;
  for (int64_t rank = 0; rank < world; ++rank) {
    std::map<std::string, std::string> variables = {
        {"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(world)},
        {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(world)},
        {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", std::to_string(port)}};
    if (change) change(rank, variables);
    if (variables.empty()) continue;  // this one does not start
    options.environment = environment_of(variables);
    children.push_back(start(scenario, program, options, around));
  }
  return wait_for(std::move(children), patience);
}

}  // namespace moetwin::test
