#include <algorithm>
#include <cmath>

#include "tests/core/train/data_scenario.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Contains;

namespace {

using Sequences = std::vector<std::vector<int32_t>>;

std::string ids(std::vector<uint64_t> values, int width) {
  std::string out;
  for (uint64_t value : values) out += little_endian(value, width);
  return out;
}

std::string llmc_header(uint64_t magic, uint64_t version, uint64_t tokens) {
  std::string out = ids({magic, version, tokens}, 4);
  out.resize(1024);
  return out;
}

/// An index by the format's definition; `type` its code.
std::string megatron_index(int type, int width, std::vector<uint64_t> lengths,
                           std::vector<uint64_t> documents) {
  std::string out("MMIDIDX\0\0", 9);
  out += ids({1}, 8) + ids({static_cast<uint64_t>(type)}, 1);
  out += ids({lengths.size(), documents.size()}, 8) + ids(lengths, 4);
  uint64_t at = 0;
  for (uint64_t length : lengths) {
    out += ids({at}, 8);
    at += length * static_cast<uint64_t>(width);
  }
  return out + ids(documents, 8);
}

}  // namespace

TEST_CASE("tokens: raw uint16 and uint32 as nanoGPT writes them") {
  const TemporaryDirectory dir;
  dir.write("train.bin", ids({1, 50256, 3, 4, 65535}, 2));
  const auto source = open_data(data_scenario(dir, "tokens", {"train.bin"}, 2, 65536));
  CHECK(all_sequences(*source, Split::train, 2) == Sequences{{1, 50256, 3}, {3, 4, 65535}});
  dir.write("wide.bin", ids({1, 128000, 3}, 4));
  Scenario scenario = data_scenario(dir, "tokens", {"wide.bin"}, 2, 128256);
  scenario.data.token_dtype = "uint32";
  CHECK(all_sequences(*open_data(scenario), Split::train, 2) == Sequences{{1, 128000, 3}});
}

TEST_CASE("tokens: llm.c's header is recognised by its magic and decides the type") {
  const TemporaryDirectory dir;
  dir.write("a.bin", llmc_header(20240520, 1, 3) + ids({7, 8, 9}, 2));
  dir.write("b.bin", llmc_header(20240801, 7, 2) + ids({70000, 5}, 4));
  const auto source = open_data(data_scenario(dir, "tokens", {"*.bin"}, 4, 100000));
  CHECK(all_sequences(*source, Split::train, 4) == Sequences{{7, 8, 9, 70000, 5}});
}

TEST_CASE("tokens: truncated, odd and out-of-range files are refused with file, offset, rule") {
  const TemporaryDirectory dir;
  const auto message = [&](const std::string& bytes) {
    dir.write("x.bin", bytes);
    return refusal([&] { open_data(data_scenario(dir, "tokens", {"x.bin"}, 2, 1000)); });
  };
  CHECK_THAT(message(ids({1, 2, 3}, 2) + "x"),
             Contains(dir / "x.bin") && Contains("7 bytes, not a multiple of the 2 bytes"));
  CHECK_THAT(message(ids({1, 2, 1000}, 2)),
             Contains("token id 1000 at byte offset 4") && Contains("vocab_size = 1000"));
  CHECK_THAT(
      message(llmc_header(20240520, 1, 100) + ids({1, 2, 3}, 2)),
      Contains("truncated") && Contains("100 tokens") && Contains("1224") && Contains("1030"));
  CHECK_THAT(message(llmc_header(20240520, 1, 2) + ids({1, 2, 3}, 2)), Contains("too long"));
  CHECK_THAT(message(llmc_header(20240520, 1, 0)), Contains("byte offset 8 is 0"));
  CHECK_THAT(message(llmc_header(20240520, 1, 2).substr(0, 100)), Contains("truncated: 100 bytes"));
  CHECK_THAT(message(llmc_header(20240520, 1, 3) + ids({1, 2000, 3}, 2)),
             Contains("token id 2000 at byte offset 1026"));
  CHECK_THAT(message(""), Contains("empty"));
}

TEST_CASE("megatron: documents follow each other in index order, in every type") {
  struct Type {
    int code, width;
  };
  for (const Type type : {Type{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}}) {
    const TemporaryDirectory dir;
    dir.write("d.bin", ids({10, 11, 12, 13, 14}, type.width));
    dir.write("d.idx", megatron_index(type.code, type.width, {2, 0, 3}, {0, 1, 2, 3}));
    for (const char* name : {"d", "d.bin", "d.idx", "d.*"}) {
      INFO("type code " << type.code << ", named " << name);
      const auto source = open_data(data_scenario(dir, "megatron", {name}, 4));
      CHECK(all_sequences(*source, Split::train, 4) == Sequences{{10, 11, 12, 13, 14}});
    }
  }
}

TEST_CASE("megatron: sequences may lie anywhere in the .bin") {
  const TemporaryDirectory dir;
  dir.write("d.bin", ids({10, 11, 12, 13, 14}, 2));
  std::string index = megatron_index(8, 2, {2, 3}, {0, 2});
  index.replace(34 + 8, 16, ids({6, 0}, 8));  // 13 14, then 10 11 12
  dir.write("d.idx", index);
  const auto source = open_data(data_scenario(dir, "megatron", {"d"}, 4));
  CHECK(all_sequences(*source, Split::train, 4) == Sequences{{13, 14, 10, 11, 12}});
}

TEST_CASE("megatron: a broken index is refused with its place") {
  const TemporaryDirectory dir;
  dir.write("d.bin", ids({10, 11, 12, 13}, 2));
  const auto message = [&](const std::string& index) {
    dir.write("d.idx", index);
    return refusal([&] { open_data(data_scenario(dir, "megatron", {"d"}, 2)); });
  };
  const std::string good = megatron_index(8, 2, {2, 2}, {0, 1, 2});
  CHECK_THAT(message(good.substr(0, 30)), Contains("truncated: 30 bytes"));
  CHECK_THAT(message(good.substr(0, good.size() - 1)), Contains("2 sequences and 3 document"));
  CHECK_THAT(message("X" + good.substr(1)), Contains("MMIDIDX"));
  CHECK_THAT(message(megatron_index(6, 8, {2, 2}, {0, 2})), Contains("type code 6 at byte"));
  CHECK_THAT(message(megatron_index(8, 2, {2, 3}, {0, 2})),
             Contains("sequence 1 (byte offset 38)") && Contains("only 8 bytes"));
  CHECK_THAT(message(megatron_index(8, 2, {2, 2}, {0, 1})), Contains("go from 0 to 1"));
  std::string absurd = good;
  absurd.replace(18, 8, ids({~uint64_t{0} / 16}, 8));
  CHECK_THAT(message(absurd), Contains("truncated"));
}

TEST_CASE("synthetic: a pure function of seed, split and number; its entropy is the stated one") {
  const int64_t length = 64, vocab = 16;
  const auto one = synthetic_data(3, length, vocab), two = synthetic_data(3, length, vocab),
             other = synthetic_data(4, length, vocab);
  std::vector<int32_t> a(65), b(65), c(65), d(65);
  one->read(Split::train, 77, a.data());
  two->read(Split::train, 5, b.data());
  two->read(Split::train, 77, b.data());
  other->read(Split::train, 77, c.data());
  one->read(Split::validation, 77, d.data());
  CHECK(a == b);
  CHECK(a != c);
  CHECK(a != d);
  double follow = 0, count = 0;
  for (int64_t s = 0; s < 2000; ++s) {
    one->read(Split::train, s, a.data());
    for (size_t i = 0; i + 1 < a.size(); ++i) {
      REQUIRE((a[i + 1] >= 0 && a[i + 1] < vocab));
      follow += a[i + 1] == (kSyntheticStep * a[i] + 1) % vocab, ++count;
    }
  }
  // Share of followers: 0.75 + 0.25 / 16, within five standard deviations.
  const double q = kSyntheticFollow + (1 - kSyntheticFollow) / 16;
  CHECK(std::abs(follow / count - q) < 5 * std::sqrt(q * (1 - q) / count));
}

TEST_CASE(
    "synthetic domains: token and position decide the next token, by a rule for each position") {
  const size_t length = 6, vocab = 31;
  const auto source = synthetic_domain_data(3, length, vocab);
  // next[p][x], learned from the sequences; every token is met at every position.
  std::vector<std::vector<int32_t>> next(length, std::vector<int32_t>(vocab, -1));
  std::vector<int32_t> tokens(length + 1), again(length + 1);
  double first = 0;
  constexpr int64_t kSequences = 3000;
  for (int64_t s = 0; s < kSequences; ++s) {
    source->read(s % 2 ? Split::train : Split::validation, s, tokens.data());
    first += tokens[0];
    for (size_t p = 0; p < length; ++p) {
      int32_t& known = next[p][static_cast<size_t>(tokens[p])];
      if (known < 0) known = tokens[p + 1];
      REQUIRE(known == tokens[p + 1]);
    }
  }
  // The mean of a uniform token is 15 with a deviation of sqrt((31^2 - 1) / 12 / 3000) = 0.163.
  CHECK(std::abs(first / kSequences - 15) < 5 * 0.163);
  for (std::vector<int32_t>& rule : next) {
    for (const std::vector<int32_t>& other : next) CHECK((&rule == &other || rule != other));
  }
  for (std::vector<int32_t> rule : next) {
    std::sort(rule.begin(), rule.end());
    for (size_t x = 0; x < vocab; ++x) CHECK(rule[x] == static_cast<int32_t>(x));  // a permutation
  }
  // Another seed, other rules; the same seed, the same.
  synthetic_domain_data(3, length, vocab)->read(Split::train, 9, again.data());
  source->read(Split::train, 9, tokens.data());
  CHECK(tokens == again);
  synthetic_domain_data(4, length, vocab)->read(Split::train, 9, again.data());
  CHECK(tokens != again);
}
