#include "analysis/validate/batch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <json/json.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/base/error.h"
#include "core/record/json_text.h"

namespace moetwin {
namespace {

using Clock = std::chrono::steady_clock;

std::string encode(const std::vector<Prediction>& predictions) {
  Json::Value list(Json::arrayValue);
  for (const Prediction& p : predictions) {
    Json::Value entry(Json::arrayValue);
    entry.append(std::isfinite(p.value) ? Json::Value(p.value) : Json::Value());
    entry.append(p.note);
    list.append(entry);
  }
  return json_text(list);
}

std::vector<Prediction> decode(const std::string& text, size_t rows, const std::string& otherwise) {
  std::vector<Prediction> predictions(rows);
  Json::Value list;
  Json::CharReaderBuilder builder;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  const bool whole =
      reader->parse(text.data(), text.data() + text.size(), &list, nullptr) && list.isArray();
  for (size_t i = 0; i < rows; ++i) {
    if (!whole || list.size() != rows) {
      predictions[i].note = otherwise;
      continue;
    }
    const Json::Value& entry = list[static_cast<Json::ArrayIndex>(i)];
    if (entry[0].isNumeric()) predictions[i].value = entry[0].asDouble();
    predictions[i].note = entry[1].asString();
  }
  return predictions;
}

void write_all(int file, const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t n = ::write(file, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    at += static_cast<size_t>(n);
  }
}

[[noreturn]] void run_child(const Batch& batch, const MakeCluster& make, int file) {
  std::vector<Prediction> predictions;
  std::string failure;
  try {
    predictions = batch.run(make);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (!failure.empty() || predictions.size() != batch.rows.size()) {
    predictions.assign(batch.rows.size(), Prediction());
    for (Prediction& p : predictions)
      p.note = failure.empty() ? "internal error: another number of predictions" : failure;
  }
  write_all(file, encode(predictions));
  ::close(file);
  // Static objects, SimGrid's among them, belong to the parent.
  ::_exit(0);
}

struct Child {
  pid_t process = -1;
  int file = -1;
  size_t batch = 0;
  std::string text;
  Clock::time_point started;
};

Child start(const std::vector<Batch>& batches, size_t index, const MakeCluster& make,
            const std::vector<Child>& others) {
  int files[2];
  if (::pipe2(files, O_CLOEXEC) != 0)
    throw Error(ErrorClass::fault, fmt::format("pipe: {}", std::strerror(errno)));
  std::fflush(nullptr);
  const pid_t process = ::fork();
  if (process < 0) throw Error(ErrorClass::fault, fmt::format("fork: {}", std::strerror(errno)));
  if (process == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // children of a child that is given up go with it
    ::close(files[0]);
    for (const Child& other : others) ::close(other.file);
    run_child(batches[index], make, files[1]);
  }
  ::close(files[1]);
  return {process, files[0], index, "", Clock::now()};
}

/// Reads what is there; true once the child has closed its end.
bool read_some(Child& child) {
  char buffer[1 << 16];
  const ssize_t n = ::read(child.file, buffer, sizeof buffer);
  if (n > 0) child.text.append(buffer, static_cast<size_t>(n));
  return n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
}

std::string ended_by(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("the run was ended by signal {} ({})", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  return fmt::format("the run ended without a result, exit code {}", WEXITSTATUS(status));
}

}  // namespace

void run_batches(const std::vector<Batch>& batches, const MakeCluster& make,
                 const BatchOptions& options,
                 const std::function<void(size_t row, const Prediction&)>& take) {
  std::vector<std::vector<Prediction>> results(batches.size());
  std::vector<Child> children;
  size_t next = 0, done = 0;
  const auto limit = std::chrono::duration<double>(options.seconds);
  const Clock::time_point began = Clock::now();
  while (next < batches.size() || !children.empty()) {
    if (Clock::now() - began > std::chrono::duration<double>(options.all_seconds))
      for (; next < batches.size(); ++next)
        results[next] = decode("", batches[next].rows.size(), "not run: the time was up");
    while (next < batches.size() &&
           children.size() < static_cast<size_t>(std::max(1, options.processes)))
      children.push_back(start(batches, next++, make, children));
    std::vector<pollfd> polled;
    for (const Child& child : children) polled.push_back({child.file, POLLIN, 0});
    ::poll(polled.data(), polled.size(), 200);
    for (size_t i = children.size(); i-- > 0;) {
      Child& child = children[i];
      const bool late = Clock::now() - child.started > limit;
      if (late) ::kill(child.process, SIGKILL);
      const bool closed = polled[i].revents != 0 && read_some(child);
      if (!closed && !late) continue;
      int status = 0;
      while (::waitpid(child.process, &status, 0) < 0 && errno == EINTR) {
      }
      ::close(child.file);
      const Batch& batch = batches[child.batch];
      results[child.batch] =
          decode(late ? "" : child.text, batch.rows.size(),
                 late ? fmt::format("took more than {:.0f} s", options.seconds) : ended_by(status));
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(i));
      ++done;
      if (options.progress) options.progress(done, batches.size());
    }
  }
  for (size_t b = 0; b < batches.size(); ++b)
    for (size_t i = 0; i < batches[b].rows.size(); ++i) take(batches[b].rows[i], results[b][i]);
}

}  // namespace moetwin
