// What TP does to memory and traffic, against arithmetic: with numerics none, in fp32, four heads
// of 32, sequences of 512: every tensor is whole units of the allocator (512 bytes).

#include <catch2/catch.hpp>
#include <map>

#include "core/scenario/model_size.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kTokens = 512, kHidden = 128, kWidth = 512, kHeads = 4, kVocabulary = 320;

Scenario sized(int64_t tp, bool sequence, int64_t layers, int64_t experts) {
  Scenario s = small_training(1, 1, experts, 2, 1);
  ModelConfig& m = s.model_config;
  m.hidden_size = kHidden;
  m.num_attention_heads = kHeads;
  m.ffn_hidden_size = kWidth;
  m.moe_layer_config.expert_hidden_size = kWidth;
  m.vocab_size = kVocabulary;
  m.sequence_length = kTokens;
  m.num_layers = layers;
  s.distributed_config.world_size = s.distributed_config.tensor_parallel_size = tp;
  s.distributed_config.sequence_parallel = sequence;
  s.training_config.numerics = "none";
  s.training_config.dtype = "fp32";
  s.cluster.collective_algorithm = "ring";
  return s;
}

/// Bytes at the peak by class, of rank 0.
std::vector<double> memory(const Scenario& s) {
  TrainRunOptions options;
  options.tensors = false;
  options.look_after_step = [](Trainer& trainer, int64_t) {
    const auto& bytes = trainer.context().memory.use().bytes_at_peak;
    return std::vector<double>(bytes.begin(), bytes.end());
  };
  return train_in_child(s, options).seen.at(0);
}
double of(const std::vector<double>& bytes, MemoryClass memory_class) {
  return bytes.at(static_cast<size_t>(memory_class));
}

/// Bytes that all ranks sent for a purpose.
double sent(const Scenario& s, const std::string& purpose) {
  TrainRunOptions options;
  options.tensors = false;
  options.look_at_row = [&](const StepRow& row) {
    const auto found = row.by_purpose.find(purpose);
    return std::vector<double>{
        found == row.by_purpose.end() ? 0.0 : static_cast<double>(found->second.bytes)};
  };
  return train_in_child(s, options).rows.at(0);
}

}  // namespace

TEST_CASE("weights and what a layer keeps shrink with TP as arithmetic says") {
  for (const int64_t tp : {1, 2, 4})
    for (const bool sequence : {false, true}) {
      CAPTURE(tp, sequence);
      const auto two = memory(sized(tp, sequence, 2, 0)), four = memory(sized(tp, sequence, 4, 0));
      // A layer keeps, of all tokens or of a slice, the input and output of its second norm, the
      // output of its first, and its own output; statistics of both norms. Of all tokens and this
      // rank's part: queries, keys and values, attention's output and log-sum-exp, the FFN's inner
      // layer before and after the activation.
      const double between = 4.0 * kTokens * kHidden + 4 * kTokens;
      const double split =
          kTokens * (4.0 * kHidden + kHeads + 2 * kWidth) / static_cast<double>(tp);
      const double wanted = 4 * (between / static_cast<double>(sequence ? tp : 1) + split);
      CHECK(of(four, MemoryClass::activations) - of(two, MemoryClass::activations) == 2 * wanted);

      const Scenario s = sized(tp, sequence, 4, 0);
      const auto sizes = parallel_sizes(s.distributed_config, 0);
      const double weights = 4.0 * static_cast<double>(rank_parameters(s, sizes, 0, 0).dense());
      // Every parameter starts on 128 bytes; 16 of them a layer, 5 outside.
      const double rest = of(four, MemoryClass::parameters) - weights;
      CHECK(rest >= 0);
      CHECK(rest < 128.0 * (4 * 16 + 5) + 512 * 4);
      CHECK(of(four, MemoryClass::gradients) == of(four, MemoryClass::parameters));
    }
}

TEST_CASE("a layer sums over TP twice forward and twice backward; slices add one gather each") {
  const double unit = 4.0 * kTokens * kHidden;
  for (const int64_t tp : {2, 4}) {
    const auto others = static_cast<double>(tp - 1);
    // Three layers; the embedding's rows are summed forward, the head's input gradient backward. An
    // all-reduce sends 2 (n - 1) times its bytes over all ranks.
    CHECK(sent(sized(tp, false, 3, 0), "tensor parallel") == (3 * 4 + 2) * 2 * others * unit);
    // Gathers and scatters send (n - 1) times. A layer gathers two inputs forward and again in the
    // backward, and two gradients; it scatters two sums forward and two backward. The embedding
    // scatters once and gathers once, the head gathers its input twice and scatters once.
    CHECK(sent(sized(tp, true, 3, 0), "sequence parallel") == (3 * 10 + 5) * others * unit);
    CHECK(sent(sized(tp, true, 3, 0), "tensor parallel") == 0);
    // Three numbers of each part for each token, instead of its logits.
    CHECK(sent(sized(tp, false, 3, 0), "vocabulary statistics") ==
          others * static_cast<double>(tp) * 3 * kTokens * 4);
  }
}

TEST_CASE("no token crosses EP twice under TP") {
  // 4 experts over 2 EP ranks, evenly chosen: half of the 512 x 2 rows of a micro-batch leave.
  const auto dispatched = [](int64_t tp, int64_t etp, const char* purpose) {
    Scenario s = sized(tp, false, 2, 4);
    s.routing.source = "uniform";
    s.distributed_config.world_size = 2 * tp;
    s.distributed_config.expert_parallel_size = 2;
    s.distributed_config.expert_tensor_parallel_size = etp;
    s.training_config.global_batch_size = 2;
    return sent(s, purpose);
  };
  const double rows = 2.0 * 2 * kTokens * 2;  // two layers, two micro-batches
  for (const auto& [tp, etp] : {std::pair<int64_t, int64_t>{1, 1}, {2, 2}, {2, 1}, {4, 4}})
    for (const char* purpose : {"dispatch", "combine", "dispatch backward", "combine backward"}) {
      CAPTURE(tp, etp, purpose);
      CHECK(dispatched(tp, etp, purpose) == rows / 2 * kHidden * 4);
    }
  // Split experts: each row goes to the ETP - 1 others, and their parts of the sum come back; so in
  // the backward.
  CHECK(dispatched(4, 4, "expert tensor parallel") == 4 * 3 * rows * kHidden * 4);
  CHECK(dispatched(2, 1, "expert tensor parallel") == 0);
}
