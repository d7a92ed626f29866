#include "analysis/batch/processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

namespace moetwin {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// First byte of what a process sends.
enum class Outcome : char { result = 'R', error = 'E' };

void send_all(int to, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = write(to, bytes.data() + sent, bytes.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads any more
    sent += static_cast<size_t>(n);
  }
}

[[noreturn]] void work(const std::function<std::string(size_t)>& job, size_t index, int to) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would read the result
  std::string message;
  const auto failed = [&](ErrorClass error_class, const std::string& what) {
    message = std::string(1, static_cast<char>(Outcome::error)) +
              static_cast<char>(static_cast<int>(error_class)) + what;
  };
  try {
    message = static_cast<char>(Outcome::result) + job(index);
  } catch (const Error& error) {
    failed(error.error_class(), error.what());
  } catch (const std::exception& error) {
    failed(ErrorClass::internal, error.what());
  }
  send_all(to, message);
  std::fflush(nullptr);
  _exit(0);  // no destructors of globals: they belong to the parent
}

struct Running {
  size_t index = 0;
  pid_t process = 0;
  int from = -1;
  std::string received;
  Clock::time_point began;
  bool late = false;  ///< took too long and was ended
};

Running start(size_t index, const std::function<std::string(size_t)>& job,
              const std::vector<Running>& others) {
  int ends[2];
  if (pipe(ends) != 0) throw Error(ErrorClass::internal, "internal error: no pipe for a process");
  std::fflush(nullptr);  // or the child would write it again
  const pid_t process = fork();
  if (process < 0) {
    close(ends[0]), close(ends[1]);
    throw Error(ErrorClass::internal,
                fmt::format("internal error: no process for a job: {}", std::strerror(errno)));
  }
  if (process == 0) {
    close(ends[0]);
    for (const Running& other : others) close(other.from);
    work(job, index, ends[1]);
  }
  close(ends[1]);
  return {index, process, ends[0], {}, Clock::now()};
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

JobResult result_of(Running& job) {
  close(job.from);
  int status = 0;
  rusage used{};
  while (wait4(job.process, &status, 0, &used) < 0 && errno == EINTR) {
  }
  JobResult result;
  result.cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
  result.peak_bytes = static_cast<int64_t>(used.ru_maxrss) * 1024;
  const std::string& all = job.received;
  const bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (ended && !all.empty() && all[0] == static_cast<char>(Outcome::result)) {
    result.ok = true;
    result.bytes = all.substr(1);
  } else if (ended && all.size() >= 2 && all[0] == static_cast<char>(Outcome::error)) {
    result.error_class = static_cast<ErrorClass>(all[1]);
    result.error = all.substr(2);
  } else if (WIFSIGNALED(status)) {
    result.error = fmt::format("the process of job {} was ended by signal {} ({})", job.index,
                               WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else {
    result.error = fmt::format("the process of job {} ended with code {} and no result", job.index,
                               WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  return result;
}

/// Ends and collects what still runs when something goes wrong here.
struct Pool {
  std::vector<Running> running;
  ~Pool() {
    for (Running& job : running) {
      kill(job.process, SIGKILL);
      close(job.from);
      waitpid(job.process, nullptr, 0);
    }
  }
};

void check_alone() {
  std::error_code ignored;
  const std::filesystem::directory_iterator tasks("/proc/self/task", ignored);
  if (!ignored && std::distance(begin(tasks), end(tasks)) > 1)
    throw Error(ErrorClass::internal,
                "internal error: jobs in processes are started before any thread");
}

}  // namespace

std::vector<JobResult> run_in_processes(size_t count, const std::function<std::string(size_t)>& job,
                                        const ProcessOptions& options) {
  check_alone();
  const auto most = static_cast<size_t>(
      options.processes > 0 ? options.processes
                            : std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  std::vector<JobResult> results(count);
  Pool pool;
  size_t next = 0;
  const Clock::time_point began = Clock::now();
  while (next < count || !pool.running.empty()) {
    for (; next < count && since(began) > options.all_seconds; ++next)
      results[next].error = "not run: the time was up";
    while (next < count && pool.running.size() < most) {
      pool.running.push_back(start(next, job, pool.running));
      ++next;
    }
    std::vector<pollfd> waiting;
    for (const Running& r : pool.running) waiting.push_back({r.from, POLLIN, 0});
    constexpr int kLook = 200;  // ms: how often jobs' times are looked at
    const bool limited = std::isfinite(options.seconds);
    if (poll(waiting.data(), waiting.size(), limited ? kLook : -1) < 0) continue;  // a signal
    for (size_t i = waiting.size(); i-- > 0;) {
      Running& r = pool.running[i];
      if (!r.late && since(r.began) > options.seconds) {
        r.late = true;
        kill(r.process, SIGKILL);  // its end of the pipe closes
      }
      if (waiting[i].revents == 0) continue;
      char buffer[1 << 16];
      const ssize_t n = read(r.from, buffer, sizeof buffer);
      if (n > 0) r.received.append(buffer, static_cast<size_t>(n));
      if (n > 0 || (n < 0 && errno == EINTR)) continue;
      Running done = std::move(r);
      pool.running.erase(pool.running.begin() + static_cast<int64_t>(i));
      results[done.index] = result_of(done);
      if (done.late && !results[done.index].ok)
        results[done.index].error = fmt::format("took more than {:.0f} s", options.seconds);
      if (options.on_done) options.on_done(done.index, results[done.index]);
    }
  }
  return results;
}

}  // namespace moetwin
