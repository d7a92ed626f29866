#include <utility>
#include <vector>

#include "core/ops/dealt_order.h"
#include "core/ops/dispatch.h"
#include "core/ops/reference/block.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {
namespace {

/// How many of the assignments below `end`, dealt to the tokens in their order, meet tokens [first,
/// last).
int64_t dealt(const DealtOrder& order, int64_t end, int64_t first, int64_t last) {
  const int64_t rest = end % order.tokens;
  return end / order.tokens * (last - first) + order.below(rest, last) - order.below(rest, first);
}

/// With numerics off only the counts are known: router_scripted deals them. Chunks are in token
/// order, so a capacity (lowest numbers first, all weights equal) fills the first ones.
void from_counts(const PlanAttr& a, int64_t tokens, const int64_t* counts, int64_t* kept) {
  const int64_t size = (tokens + a.chunks - 1) / a.chunks;
  const DealtOrder order = DealtOrder::of(tokens);
  int64_t begin = 0;
  for (int64_t e = 0; e < a.experts; ++e) {
    int64_t left = a.capacity < 0 ? counts[e] : std::min(counts[e], a.capacity);
    for (int64_t c = 0; c < a.chunks; ++c) {
      const int64_t first = std::min(c * size, tokens), last = std::min(first + size, tokens);
      const int64_t n = tokens == 0 ? 0
                                    : dealt(order, begin + counts[e], first, last) -
                                          dealt(order, begin, first, last);
      kept[e * a.chunks + c] = std::min(n, left);
      left -= kept[e * a.chunks + c];
    }
    begin += counts[e];
  }
}

/// Which assignments are kept under a capacity.
template <class C>
std::vector<char> keep(const PlanAttr& a, const int32_t* ids, const TensorView& weights,
                       int64_t assignments) {
  std::vector<char> kept(static_cast<size_t>(assignments), 1);
  std::vector<std::vector<int32_t>> of(static_cast<size_t>(a.experts));
  for (int64_t i = 0; i < assignments; ++i)
    if (ids[i] >= 0) of[static_cast<size_t>(ids[i])].push_back(static_cast<int32_t>(i));
  const Scratch<C> weight(assignments);
  if (a.by_probability) read<C>(weights, 0, assignments, weight.get());
  for (std::vector<int32_t>& list : of) {
    if (static_cast<int64_t>(list.size()) <= a.capacity) continue;
    const auto end = list.begin() + a.capacity;
    if (a.by_probability)
      std::nth_element(list.begin(), end, list.end(), [&](int32_t x, int32_t y) {
        return weight[x] != weight[y] ? weight[x] > weight[y] : x < y;
      });
    for (auto i = end; i != list.end(); ++i) kept[static_cast<size_t>(*i)] = 0;
  }
  return kept;
}

}  // namespace

void dispatch_plan(const ReferenceCall& call) {
  const auto a = call.get<PlanAttr>();
  const int64_t tokens = call[0].shape[0], k = a.top_k, experts = a.experts;
  const int64_t* counts = call[2].as<const int64_t>();
  int64_t* kept = call[5].as<int64_t>();
  if (counts) kept[a.chunks * experts] = counts[experts];
  if (!call[0].data) return from_counts(a, tokens, counts, kept);
  const int32_t* ids = call[0].as<const int32_t>();
  int32_t *position = call[3].as<int32_t>(), *source = call[4].as<int32_t>();
  std::vector<char> keeps;
  if (a.capacity >= 0)
    with_compute(call[1].dtype, [&]<class C>(C) { keeps = keep<C>(a, ids, call[1], tokens * k); });
  const auto goes = [&](int64_t i) {
    return ids[i] >= 0 && (keeps.empty() || keeps[static_cast<size_t>(i)]);
  };
  std::fill_n(position, tokens * k, int32_t{-1});
  std::fill_n(source, tokens * k, int32_t{-1});
  const Scratch<int64_t> next(experts);
  const int64_t size = (tokens + a.chunks - 1) / a.chunks;
  for (int64_t c = 0; c < a.chunks; ++c) {
    const int64_t begin = std::min(c * size, tokens) * k,
                  end = std::min((c + 1) * size, tokens) * k;
    std::fill_n(next.get(), experts, int64_t{0});
    for (int64_t i = begin; i < end; ++i)
      if (goes(i)) ++next[ids[i]];
    int64_t row = begin;
    for (int64_t e = 0; e < experts; ++e) {
      kept[e * a.chunks + c] = next[e];
      row += std::exchange(next[e], row);
    }
    for (int64_t i = begin; i < end; ++i) {
      if (!goes(i)) continue;
      const int64_t at = next[ids[i]]++;
      position[i] = static_cast<int32_t>(at);
      source[at] = static_cast<int32_t>(i);
    }
  }
}

}  // namespace moetwin::reference
