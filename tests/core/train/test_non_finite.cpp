// Numbers that are none end the run with their place, never silently.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/train/data_order.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

struct Stop {
  ErrorClass error_class = ErrorClass::internal;
  std::string message;
};

Stop stop_of(const Scenario& s, const TrainRunOptions& options) {
  try {
    train_in_child(s, options);
  } catch (const Error& error) {
    return {error.error_class(), error.what()};
  }
  return {ErrorClass::internal, "the run went on"};
}

/// After `step`, element `index` of a parameter on one rank becomes `value`.
TrainRunOptions spoil(int64_t step, int64_t rank, const std::string& name, int64_t index,
                      double value) {
  TrainRunOptions options;
  options.look_after_step = [=](Trainer& trainer, int64_t now) {
    if (now != step || trainer.rank() != rank) return std::vector<double>{};
    for (const Parameter& p : trainer.parameters().all())
      if (p.name == name)
        trainer.context().device.write(p.value.slice(index, {1}), &value,
                                       trainer.context().streams.compute);
    return std::vector<double>{};
  };
  return options;
}

constexpr int64_t kSequences = 1000;
int32_t id_of(int64_t sequence, int64_t vocab) { return static_cast<int32_t>(sequence % vocab); }

/// Sequence i is id i mod vocabulary, over and over.
class Constant : public TokenSource {
 public:
  explicit Constant(const Scenario& s)
      : length_(s.model_config.sequence_length), vocab_(s.model_config.vocab_size) {}
  int64_t sequences(Split) const override { return kSequences; }
  void read(Split, int64_t sequence, int32_t* tokens) const override {
    std::fill_n(tokens, length_ + 1, id_of(sequence, vocab_));
  }
  std::string description() const override { return "constant sequences"; }

 private:
  int64_t length_, vocab_;
};

}  // namespace

TEST_CASE("a NaN in the logits names step, layer, rank and token; exit code 6", "[P048]") {
  // Two sequences a rank, each of one token id only. After step 2 rank 1's row of the embedding for
  // the id of the last sequence is NaN: token 3 x 6 of the batch of step 3 is the first to see it.
  for (const auto& [dp, ep] : std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {1, 2}}) {
    Scenario s = small_training(dp, ep, 4, 2, 5);
    s.training_config.micro_batch_size = 2;
    s.training_config.global_batch_size = 4;
    const int64_t vocab = s.model_config.vocab_size;
    // A seed with which no earlier sequence of that step has the same id.
    const auto id_at = [&](int64_t index) {
      const BatchOrder order(static_cast<uint64_t>(s.training_config.seed), kSequences, 4);
      return id_of(order.sequence(3, index), vocab);
    };
    while (id_at(0) == id_at(3) || id_at(1) == id_at(3) || id_at(2) == id_at(3))
      ++s.training_config.seed;
    const int32_t id = id_at(3);
    TrainRunOptions options = spoil(2, 1, "embedding.table", id * s.model_config.hidden_size + 3,
                                    std::numeric_limits<double>::quiet_NaN());
    options.data = [&] { return std::make_unique<Constant>(s); };
    const Stop stop = stop_of(s, options);
    CHECK(static_cast<int>(stop.error_class) == 6);
    CHECK_THAT(stop.message, Contains("non-finite router logit") && Contains("step 3") &&
                                 Contains("layer 0") && Contains("rank 1") &&
                                 Contains("token 18 "));
  }
}

TEST_CASE("an infinite router weight of the second layer names that layer", "[P048]") {
  const Stop stop = stop_of(
      small_training(1, 2, 4, 2, 5),
      spoil(1, 0, "layers.1.moe.router.weight", 0, std::numeric_limits<double>::infinity()));
  CHECK(stop.error_class == ErrorClass::non_finite);
  CHECK_THAT(stop.message, Contains("step 2") && Contains("layer 1") && Contains("rank 0") &&
                               Contains("token 0 "));
}

TEST_CASE("a NaN that no router sees ends the step as well") {
  // In an expert's weight, behind the last router.
  const Stop stop =
      stop_of(small_training(1, 2, 4, 2, 5),
              spoil(1, 1, "layers.1.moe.experts.w2", 5, std::numeric_limits<double>::quiet_NaN()));
  CHECK(stop.error_class == ErrorClass::non_finite);
  CHECK_THAT(stop.message, Contains("step 2") && Contains("gradient norm is nan"));
}
