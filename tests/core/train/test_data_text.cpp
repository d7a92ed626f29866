#include <cstdio>

#include "tests/core/train/data_scenario.h"
#include "tests/support/bigram.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Contains;

namespace {
using Sequences = std::vector<std::vector<int32_t>>;
}

TEST_CASE("text: bytes are tokens, a zero stands between files, targets never repeat") {
  const TemporaryDirectory dir;
  dir.write("2.txt", "\xc3\xa9!");  // e with acute accent
  dir.write("1.txt", "abc");
  const auto source = open_data(data_scenario(dir, "text", {"*.txt"}, 2));
  // The row is a b c 0 C3 A9 !: 7 tokens, (7 - 1) / 2 = 3 sequences.
  CHECK(all_sequences(*source, Split::train, 2) ==
        Sequences{{'a', 'b', 'c'}, {'c', 0, 0xc3}, {0xc3, 0xa9, '!'}});
  CHECK(source->sequences(Split::validation) == 0);
}

TEST_CASE("the validation split is the tail and shares no target with training") {
  const TemporaryDirectory dir;
  dir.write("t", "0123456789abcdefghij");
  Scenario scenario = data_scenario(dir, "text", {"t"}, 3);
  scenario.data.validation_fraction = 0.25;  // 5 of 20 tokens
  const auto source = open_data(scenario);
  CHECK(all_sequences(*source, Split::train, 3) == Sequences{{'0', '1', '2', '3'},
                                                             {'3', '4', '5', '6'},
                                                             {'6', '7', '8', '9'},
                                                             {'9', 'a', 'b', 'c'}});
  CHECK(all_sequences(*source, Split::validation, 3) == Sequences{{'f', 'g', 'h', 'i'}});

  dir.write("v", "vwxyz");
  scenario.data.validation_files = {"v"};
  const auto two = open_data(scenario);
  CHECK(two->sequences(Split::train) == 6);
  CHECK(all_sequences(*two, Split::validation, 3) == Sequences{{'v', 'w', 'x', 'y'}});
}

TEST_CASE("text shorter than one global batch is refused with the numbers") {
  const TemporaryDirectory dir;
  dir.write("t", std::string(40, 'x'));
  Scenario scenario = data_scenario(dir, "text", {"t"}, 10);
  scenario.training_config.global_batch_size = 4;  // needs 41 tokens
  CHECK_THAT(refusal([&] { open_data(scenario); }),
             Contains("40 tokens") && Contains("3 sequences") &&
                 Contains("global_batch_size = 4") && Contains("at least 41"));
  dir.write("t", std::string(41, 'x'));
  CHECK(open_data(scenario)->sequences(Split::train) == 4);
}

TEST_CASE("a byte beyond the vocabulary is named with its place") {
  const TemporaryDirectory dir;
  dir.write("t", "ab\xffgh");
  CHECK_THAT(refusal([&] { open_data(data_scenario(dir, "text", {"t"}, 2, 128)); }),
             Contains(dir / "t") && Contains("token id 255 at byte offset 2") &&
                 Contains("vocab_size = 128"));
}

TEST_CASE("an unknown format, no files") {
  const TemporaryDirectory dir;
  dir.write("t", "abcdef");
  CHECK_THAT(refusal([&] { open_data(data_scenario(dir, "texts", {"t"}, 2)); }),
             Contains("\"texts\"") && Contains("legal values"));
  CHECK_THAT(refusal([&] { open_data(data_scenario(dir, "text", {}, 2)); }),
             Contains("data.files") && Contains("synthetic"));
}

TEST_CASE("the bigram judge on a row whose probabilities are known") {
  // Training a b a b ...: b follows a and a follows b always. With 2n + 1 tokens each of the two
  // pairs is seen n times by one successor: p = (n + P(b)) / (n + 1), P(b) = (n + 1) / (2n + 256).
  const TemporaryDirectory dir;
  std::string row;
  for (int i = 0; i < 100; ++i) row += "ab";
  dir.write("train", row + "a");
  dir.write("valid", "aba");
  Scenario scenario = data_scenario(dir, "text", {"train"}, 2);
  scenario.data.validation_files = {"valid"};
  const auto source = open_data(scenario);
  const double n = 100, p = (n + (n + 1) / (2 * n + 256)) / (n + 1);
  CHECK(bigram_loss(*source, 2, 256) == Approx(-std::log(p)).epsilon(1e-12));
}

// Run by hand: test_data "[.fortunes]"
TEST_CASE("what a bigram model makes of the quickstart's text", "[.fortunes]") {
  const TemporaryDirectory dir;
  std::vector<std::vector<std::string>> lists = {{"/usr/share/games/fortunes/*", "!*.dat"}};
  lists.push_back(lists[0]);
  for (const char* no_prose : {"!ascii-art", "!perl", "!translate-me", "!debian", "!zippy"})
    lists.back().push_back(no_prose);
  for (const std::vector<std::string>& files : lists) {
    Scenario scenario = data_scenario(dir, "text", files, 128);
    scenario.data.validation_fraction = 0.1;
    const auto source = open_data(scenario);
    std::printf(
        "%s: train %ld, validation %ld sequences; bigram %.4f nats a byte, first 32: %.4f\n",
        source->description().c_str(), source->sequences(Split::train),
        source->sequences(Split::validation), bigram_loss(*source, 128, 256),
        bigram_loss(*source, 128, 256, 32));
  }
}
