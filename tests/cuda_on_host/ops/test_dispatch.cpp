#include <catch2/catch.hpp>

#include "core/ops/dispatch.h"
#include "core/ops/isa.h"
#include "tests/cuda_on_host/ops/compare.h"

namespace moetwin::cuda_on_host {
namespace {

struct Plan {
  int64_t tokens, experts, k, chunks, capacity;
  bool by_probability;
  Tensor ids, weights, position, source, kept;

  OpCall call(Inputs& in) {
    PlanAttr attr;
    attr.experts = experts;
    attr.top_k = k;
    attr.chunks = chunks;
    attr.capacity = capacity;
    attr.by_probability = by_probability;
    // Skewed, so that capacities bind; some assignments go nowhere; few distinct weights, so that
    // there are ties.
    std::vector<double> chosen;
    for (int64_t i = 0; i < tokens * k; ++i)
      chosen.push_back(
          static_cast<double>(in.number(0, 9) == 0 ? -1 : in.number(0, in.number(0, experts - 1))));
    ids = in.list({tokens, k}, DType::i32, chosen);
    weights = in.list({tokens, k}, DType::f32, std::vector<double>(chosen.size()));
    for (size_t i = 0; i < chosen.size(); ++i)
      static_cast<float*>(weights.data())[i] = static_cast<float>(in.number(0, 12)) / 16.0f;
    position = in.output({tokens * k}, DType::i32);
    source = in.output({tokens * k}, DType::i32);
    kept = in.output({chunks * experts + 1}, DType::i64);
    return dispatch_plan(ids, weights, in.whole({experts + 1}, DType::i64, 0, 9), position, source,
                         kept, attr);
  }
};

void run_reference(const OpCall& call) {
  ReferenceCall reference;
  reference.op = call.op;
  reference.attributes = call.attributes;
  for (int i = 0; i < call.count; ++i)
    reference.tensors[static_cast<size_t>(i)] = {call[i].data(), call[i].shape, call[i].dtype};
  reference_of(*call.op, Isa::x86_64)(reference);
}

}  // namespace

TEST_CASE("the plan sorts stably by expert, in chunks and under capacities") {
  Inputs in(1);
  for (const auto& [tokens, experts, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {40, 5, 2}, {700, 64, 3}, {3, 300, 8}, {1025, 3, 1}})
    for (int64_t chunks : {1, 3, 5})
      for (int64_t capacity : {int64_t{-1}, int64_t{0}, int64_t{4}, tokens * k / experts + 1})
        for (const bool by_probability : {false, true}) {
          INFO("tokens " << tokens << " experts " << experts << " k " << k << " chunks " << chunks
                         << " capacity " << capacity << " by probability " << by_probability);
          Plan plan{tokens, experts, k, chunks, capacity, by_probability, {}, {}, {}, {}, {}};
          compare(plan.call(in));
        }
}

TEST_CASE("rows move to experts and back, slots in order") {
  Inputs in(2);
  each_real([&](DType d) {
    for (int64_t h : {16, 24, 13})
      for (int64_t capacity : {-1, 7}) {
        const int64_t tokens = 30, k = 3, chunks = 2;
        Plan plan{tokens, 4, k, chunks, capacity, false, {}, {}, {}, {}, {}};
        run_reference(plan.call(in));
        const Tensor weights = in.real({tokens, k}, DType::f32, 0, 1);
        const Tensor x = in.real({tokens, h}, d), out = in.output({tokens, h}, d);
        for (int64_t chunk = 0; chunk < chunks; ++chunk) {
          RangeAttr rows;
          rows.top_k = k;
          rows.first = chunk_begin(tokens, chunks, chunk) * k;
          rows.count = chunk_begin(tokens, chunks, chunk + 1) * k - rows.first;
          compare(permute(x, plan.source, in.output({rows.count, h}, d), rows), {0, 0});
          RangeAttr part;
          part.top_k = k;
          part.first = rows.first / k;
          part.count = rows.count / k;
          const Tensor y = in.real({rows.count, h}, d);
          compare(permute_backward(y, plan.position, out, part), {2, 0});
          compare(combine(y, weights, plan.position, out, part), {4, 2});
          compare(combine_backward(x, y, weights, plan.position, in.output({rows.count, h}, d),
                                   in.output({tokens, k}, DType::f32), part),
                  {8, 8});
          // The chunk's tokens in tensors of their own.
          const int64_t first = part.first, count = part.count;
          rows.first = part.first = 0;
          rows.slice = part.slice = first;
          const Tensor mine = in.real({count, h}, d), w = weights.rows(first, count);
          const Tensor position = plan.position.slice(first * k, {count * k});
          compare(permute(mine, plan.source.slice(first * k, {count * k}),
                          in.output({rows.count, h}, d), rows),
                  {0, 0});
          compare(combine(y, w, position, in.output({count, h}, d), part), {4, 2});
          compare(combine_backward(mine, y, w, position, in.output({rows.count, h}, d),
                                   in.output({count, k}, DType::f32), part),
                  {8, 8});
        }
      }
  });
}

TEST_CASE("ranges of rows are regrouped, more of them than one kernel's parameters hold") {
  Inputs in(3);
  each_real([&](DType d) {
    for (int64_t h : {16, 5}) {
      std::vector<int64_t> triples;
      int64_t rows = 0;
      for (int i = 0; i < 400; ++i) {
        const int64_t count = in.number(0, 2);
        triples.insert(triples.end(), {rows, 0, count});
        rows += count;
      }
      int64_t to = 0;
      for (size_t i = triples.size(); i > 0; i -= 3) {  // backwards
        triples[i - 2] = to;
        to += triples[i - 1];
      }
      compare(regroup(in.real({rows, h}, d), in.output({rows + 3, h}, d),
                      std::make_shared<const std::vector<int64_t>>(triples)),
              {0, 0});
      compare(regroup(in.real({rows, h}, d), in.output({2, h}, d),
                      std::make_shared<const std::vector<int64_t>>()));
    }
  });
}

}  // namespace moetwin::cuda_on_host
