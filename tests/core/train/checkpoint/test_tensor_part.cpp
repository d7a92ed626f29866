// Places in a whole tensor: copies between parts of two layouts against loops over every element,
// and the names of experts.

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "core/train/checkpoint/tensor_part.h"

using namespace moetwin;

namespace {

// Place in the whole of each element of a part, by loops over its box.
std::vector<int64_t> places(const TensorPart& p) {
  std::vector<int64_t> box;
  for (int64_t a = 0; a < p.local[0]; ++a)
    for (int64_t b = 0; b < p.local[1]; ++b)
      for (int64_t c = 0; c < p.local[2]; ++c)
        box.push_back(((a + p.offset[0]) * p.global[1] + b + p.offset[1]) * p.global[2] + c +
                      p.offset[2]);
  return {box.begin() + p.begin, box.begin() + p.begin + p.count};
}

}  // namespace

TEST_CASE("elements that two parts share are copied to their places, and no others") {
  std::mt19937 random(7);
  const auto draw = [&random](int64_t lowest, int64_t highest) {
    return std::uniform_int_distribution<int64_t>(lowest, highest)(random);
  };
  int64_t shared_in_all = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::array<int64_t, 3> global{draw(1, 4), draw(1, 5), draw(1, 6)};
    const auto part = [&] {
      TensorPart p;
      p.global = global;
      for (size_t i = 0; i < 3; ++i) {
        p.local[i] = draw(1, global[i]);
        p.offset[i] = draw(0, global[i] - p.local[i]);
      }
      p.begin = draw(0, p.elements_of_box() - 1);
      p.count = draw(1, p.elements_of_box() - p.begin);
      return p;
    };
    const TensorPart from = part(), to = part();
    std::map<int64_t, int64_t> values;  // place -> value
    std::vector<int64_t> source, target(static_cast<size_t>(to.count), -1), expected = target;
    for (const int64_t place : places(from)) {
      source.push_back(place * 10);
      values[place] = place * 10;
    }
    const std::vector<int64_t> wanted = places(to);
    int64_t shared = 0;
    for (size_t i = 0; i < wanted.size(); ++i)
      if (values.count(wanted[i])) expected[i] = values[wanted[i]], ++shared;
    CHECK(copy_common(from, source.data(), to, target.data(), sizeof(int64_t)) == shared);
    CHECK(target == expected);
    CHECK(from.first() == places(from).front());
    shared_in_all += shared;
  }
  CHECK(shared_in_all > 1000);
}

TEST_CASE("extents of one are not written") {
  CHECK(written_shape({1, 6, 4}) == std::vector<int64_t>{6, 4});
  CHECK(written_shape({8, 2, 16}) == std::vector<int64_t>{8, 2, 16});
  CHECK(written_shape({1, 1, 1}) == std::vector<int64_t>{1});
}

TEST_CASE("experts are named by their global ids, whatever part of them a rank has", "[P139]") {
  // Experts 2 and 3 of four, second half of the width of three: as GroupedExperts declares them.
  Parameter w1;
  w1.name = "layers.1.moe.experts.w1";
  w1.kind = ParameterKind::expert;
  w1.shape = {2, 5, 3};
  w1.global = {4 * 5, 1, 6};
  w1.offset = {2 * 5, 0, 3};
  w1.local = {2 * 5, 1, 3};
  const auto parts = named_parts(w1, 4, 7, 16);  // from element 7 of expert 2 into expert 3
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].name == "layers.1.moe.experts.2.w1");
  CHECK(parts[1].name == "layers.1.moe.experts.3.w1");
  CHECK(parts[0].part.global == std::array<int64_t, 3>{5, 1, 6});
  CHECK(parts[0].part.offset == std::array<int64_t, 3>{0, 0, 3});
  CHECK(parts[0].part.local == std::array<int64_t, 3>{5, 1, 3});
  CHECK(parts[0].part.begin == 7);
  CHECK(parts[0].part.count == 8);
  CHECK(parts[0].here.begin == 7);
  CHECK(parts[1].part.begin == 0);
  CHECK(parts[1].part.count == 8);
  CHECK(parts[1].here.begin == 15);

  // The second bias: one row per expert.
  Parameter b2;
  b2.name = "layers.1.moe.experts.b2";
  b2.kind = ParameterKind::expert;
  b2.shape = {2, 5};
  b2.global = {1, 4, 5};
  b2.offset = {0, 2, 0};
  b2.local = {1, 2, 5};
  const auto rows = named_parts(b2, 4, 0, 10);
  REQUIRE(rows.size() == 2);
  CHECK(rows[1].name == "layers.1.moe.experts.3.b2");
  CHECK(rows[1].part.global == std::array<int64_t, 3>{1, 1, 5});
  CHECK(rows[1].part.is_whole());
  CHECK(rows[1].here.begin == 5);

  // Experts that have moved: 3 and 0 in the two places.
  for (Parameter* moved : {&w1, &b2}) moved->experts = {3, 0};
  CHECK(named_parts(w1, 4, 0, 30)[0].name == "layers.1.moe.experts.3.w1");
  CHECK(named_parts(w1, 4, 0, 30)[1].name == "layers.1.moe.experts.0.w1");
  CHECK(named_parts(b2, 4, 0, 10)[1].name == "layers.1.moe.experts.0.b2");
  // Row 1 of expert 3 is row 3 x 5 + 1 of six columns, of which this rank has those from 3 on.
  CHECK(w1.global_index(3) == (3 * 5 + 1) * 6 + 3);
  CHECK(w1.global_index(15 + 4) == 1 * 6 + 3 + 1);
  CHECK(b2.global_index(2) == 3 * 5 + 2);
  CHECK(b2.global_index(7) == 2);

  Parameter dense;
  dense.name = "head.norm.gamma";
  dense.shape = {5};
  dense.global = dense.local = {1, 1, 5};
  const auto one = named_parts(dense, 4, 1, 3);
  REQUIRE(one.size() == 1);
  CHECK(one[0].name == "head.norm.gamma");
  CHECK(one[0].part.begin == 1);
  CHECK(one[0].part.count == 3);
}

TEST_CASE("a stretch of a weight with ranges of columns is a stretch of each range") {
  // Rank 1 of two: columns 2, 3 | 5 | 7 of 8, of three rows, as it has queries, keys and values.
  Parameter qkv;
  qkv.name = "layers.0.attention.qkv.weight";
  qkv.shape = {3, 4};
  qkv.global = {1, 3, 8};
  qkv.local = {1, 3, 4};
  qkv.columns = {{2, 0, 2}, {5, 2, 1}, {7, 3, 1}};
  for (int64_t begin = 0; begin < 12; ++begin)
    for (int64_t end = begin + 1; end <= 12; ++end) {
      std::map<int64_t, int64_t> found;  // place in the whole -> place in the local tensor
      for (const NamedPart& named : named_parts(qkv, 4, begin, end - begin)) {
        CHECK(named.name == qkv.name);
        const auto whole = places(named.part), here = places(named.here);
        REQUIRE(whole.size() == here.size());
        for (size_t i = 0; i < whole.size(); ++i) found[whole[i]] = here[i];
      }
      REQUIRE(static_cast<int64_t>(found.size()) == end - begin);
      for (int64_t i = begin; i < end; ++i) CHECK(found.at(qkv.global_index(i)) == i);
    }
}

TEST_CASE("with one plane and as many experts as rows, rows are experts") {
  // E = 1: both axes divide; the whole parameter is expert 0.
  Parameter w2;
  w2.name = "layers.0.moe.experts.w2";
  w2.kind = ParameterKind::expert;
  w2.shape = {1, 3, 5};
  w2.global = w2.local = {1, 3, 5};
  const auto parts = named_parts(w2, 1, 0, 15);
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].name == "layers.0.moe.experts.0.w2");
  CHECK(parts[0].part.is_whole());
}
