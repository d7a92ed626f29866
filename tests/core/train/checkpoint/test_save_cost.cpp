// What saving costs on the modelled cluster: a rank's state at the rate of its storage, at once or
// beside training, and nothing else of a step changes.

#include <catch2/catch.hpp>
#include <cstring>

#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kSteps = 4;

/// Seconds between the end of each step and the start of the next, on rank 0.
std::vector<double> pauses(const Scenario& s) {
  TrainRunOptions options;
  options.tensors = false;
  std::vector<double> ends;  // start and end of each step
  options.look_at_rank = [&ends](const RankStep& step) {
    if (step.rank == 0) ends.insert(ends.end(), {step.start, step.end});
  };
  options.say = [&ends] {
    return std::string(reinterpret_cast<const char*>(ends.data()), ends.size() * sizeof(double));
  };
  const std::string bytes = train_in_child(s, options).text;
  std::vector<double> times(bytes.size() / sizeof(double)), result;
  std::memcpy(times.data(), bytes.data(), bytes.size());
  REQUIRE(times.size() == 2 * kSteps);
  for (size_t i = 1; i + 1 < times.size(); i += 2) result.push_back(times[i + 1] - times[i]);
  return result;
}

Scenario saving(double bytes_per_second, bool async) {
  Scenario s = small_training(1, 1, 4, 2, kSteps);
  s.training_config.numerics = "none";
  s.training_config.dtype = "bf16";
  s.training_config.optimizer = "adamw";
  s.checkpoint.every_steps = 1;
  s.checkpoint.async = async;
  s.checkpoint.write_bytes_per_second = bytes_per_second;
  return s;
}

}  // namespace

TEST_CASE(
    "a save takes 12 bytes a parameter of the storage's time; beside training only the rest") {
  // Table 17 x 8 and positions 6 x 8; two layers of: two norms 2 x 16, attention 8 x 24 + 24 + 8 x
  // 8
  // + 8, router 8 x 4, four experts of 8 x 16 + 16 + 16 x 8 + 8; a last norm of 16.
  const double parameters =
      17 * 8 + 6 * 8 +
      2 * (2 * 16 + 8 * 24 + 24 + 8 * 8 + 8 + 8 * 4 + 4 * (8 * 16 + 16 + 16 * 8 + 8)) + 16;
  const double rate = 1e5, write = 12 * parameters / rate;
  const std::vector<double> free = pauses(saving(0, false)), paid = pauses(saving(rate, false)),
                            beside = pauses(saving(rate, true));
  REQUIRE(free.size() == kSteps - 1);
  for (size_t i = 0; i < free.size(); ++i) {
    CAPTURE(i);
    CHECK(free[i] > 0);  // the copies to the host
    CHECK(paid[i] - free[i] == Approx(write).epsilon(1e-6));
    // The first asynchronous save waits for none; each later one for what is left of the one
    // before.
    if (i == 0) {
      CHECK(beside[i] == Approx(free[i]).epsilon(1e-6));
    } else {
      CHECK(beside[i] > free[i]);
      CHECK(beside[i] < paid[i]);
    }
  }
}
