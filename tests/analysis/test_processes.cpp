#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>

#include "analysis/batch/processes.h"

using namespace moetwin;

namespace {
// Long enough not to fit in a pipe, different for every job.
std::string long_text(size_t index) { return std::string(200'000 + index, 'a' + char(index % 26)); }
}  // namespace

TEST_CASE("jobs in processes: every result in its place, however many run at once") {
  for (int processes : {1, 3, 64}) {
    ProcessOptions options;
    options.processes = processes;
    size_t seen = 0;
    options.on_done = [&](size_t index, const JobResult& result) {
      ++seen;
      CHECK(result.bytes.size() == 200'000 + index);
    };
    const auto results = run_in_processes(30, long_text, options);
    REQUIRE(results.size() == 30);
    CHECK(seen == 30);
    for (size_t i = 0; i < results.size(); ++i) {
      CHECK(results[i].ok);
      CHECK(results[i].bytes == long_text(i));
      CHECK(results[i].peak_bytes > 0);
    }
  }
  CHECK(run_in_processes(0, long_text).empty());
}

TEST_CASE("jobs in processes: nothing of one job is seen by another or by the caller") {
  int counter = 0;
  const auto results = run_in_processes(4, [&](size_t) { return std::to_string(++counter); });
  for (const JobResult& result : results) CHECK(result.bytes == "1");
  CHECK(counter == 0);
}

TEST_CASE("jobs in processes: errors, crashes and kills are results like any other") {
  const auto results = run_in_processes(5, [](size_t index) -> std::string {
    if (index == 0) throw Error(ErrorClass::capacity, "out of memory on rank 3");
    if (index == 1) throw std::runtime_error("something else");
    if (index == 2) kill(getpid(), SIGKILL);
    if (index == 3) _exit(9);
    return "";
  });
  CHECK_FALSE(results[0].ok);
  CHECK(results[0].error_class == ErrorClass::capacity);
  CHECK(results[0].error == "out of memory on rank 3");
  CHECK(results[1].error_class == ErrorClass::internal);
  CHECK(results[1].error == "something else");
  CHECK(results[2].error.find("job 2 was ended by signal 9") != std::string::npos);
  CHECK(results[3].error.find("job 3 ended with code 9") != std::string::npos);
  CHECK(results[4].ok);
  CHECK(results[4].bytes.empty());
}

TEST_CASE("jobs in processes: one that takes too long is ended, and after a while none begins") {
  ProcessOptions options;
  options.processes = 1;
  options.seconds = 1;
  const auto late = run_in_processes(
      2,
      [](size_t index) -> std::string {
        if (index == 0) sleep(60);
        return "in time";
      },
      options);
  CHECK_FALSE(late[0].ok);
  CHECK(late[0].error == "took more than 1 s");
  CHECK(late[1].ok);
  options.seconds = 60;
  options.all_seconds = 0.05;
  const auto few = run_in_processes(
      3,
      [](size_t) -> std::string {
        usleep(100'000);
        return "done";
      },
      options);
  CHECK(few[0].ok);
  for (const size_t i : {1, 2}) CHECK(few[i].error == "not run: the time was up");
}
