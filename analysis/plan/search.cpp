#include "analysis/plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "analysis/plan/bounds.h"
#include "analysis/plan/front.h"
#include "core/base/error.h"
#include "core/scenario/model_size.h"
#include "core/scenario/problems.h"
#include "core/scenario/rules.h"
#include "core/scenario/sharding.h"

namespace moetwin {

namespace {

/// The key of the first broken rule; empty: none is broken.
std::string broken_rule(const Scenario& scenario) {
  Problems problems("the plan");
  check_rules(scenario, &problems);
  if (problems.errors().empty()) return "";
  const std::string& text = problems.errors().front();
  // "place: path: message"; without a place "path: message".
  const size_t at = text.find("_config.");
  if (at == text.npos) return text.substr(0, text.find(':'));
  const size_t begin = text.rfind(' ', at) == text.npos ? 0 : text.rfind(' ', at) + 1;
  return text.substr(begin, text.find_first_of(": ", at) - begin);
}

/// Of the fullest stage: weights, gradients and optimizer, on the GPU.
int64_t state_bytes(const Scenario& scenario, int64_t gpus_per_node) {
  const ParallelSizes sizes = parallel_sizes(scenario.distributed_config,
                                             scenario.model_config.moe_layer_config.num_experts);
  int64_t most = 0;
  for (int64_t stage = 0; stage < sizes.pp; ++stage) {
    const ParameterCount held = rank_parameters(scenario, sizes, stage, 0);
    const StateBytes dense = dense_state_bytes(scenario, sizes, held, gpus_per_node);
    const StateBytes expert = expert_state_bytes(scenario, sizes, held, gpus_per_node);
    most = std::max(most, dense.total() + expert.total());
  }
  return most;
}

/// Whether weights are gathered layer by layer.
bool gathers(const std::string& sharding) {
  DistributedConfig config;
  config.fsdp.sharding_strategy = sharding;
  return sharding_of(config).shard == Shard::everything;
}

/// Layouts of the first round of a pass.
constexpr size_t kFirstRound = 8;

/// What tells points of one layout apart.
auto key(const PlanPoint& point) {
  return std::tuple(point.sharding, point.schedule, point.virtual_stages, point.micro_batch,
                    point.recompute, point.cpu_offload, point.overlap, point.capacity_factor,
                    point.rebalancing);
}
using Key = decltype(key(PlanPoint()));

class Search {
 public:
  Search(const Scenario& scenario, const PlanSpace& space, const PlanMachine& machine,
         const EstimateStep& estimate)
      : scenario_(scenario), space_(space), machine_(machine), estimate_(estimate) {}

  PlanSearch run(const PlanTask& task) {
    known_ = task.known.get();
    for (const PlanResult& r : task.fitting) seen_.emplace(key(r.point), &r.figures);
    of_layout(task.layout, task.pass);
    return std::move(found_);
  }

 private:
  void of_layout(const PlanLayout& layout, PlanPass pass) {
    PlanPoint point;
    point.layout = layout;
    const bool stages = layout.pp > 1,
               copies = layout.edp * layout.ep * layout.etp > layout.tp || layout.edp > 1;
    for (const std::string& sharding : space_.sharding) {
      if (!copies && sharding != space_.sharding.front()) continue;  // nothing to shard over
      point.sharding = sharding;
      const PlanPass simple_pass = gathers(sharding) ? PlanPass::gathering : PlanPass::simple;
      for (const std::string& schedule :
           stages ? space_.schedule : std::vector<std::string>{"1f1b"}) {
        point.schedule = schedule;
        const bool chunks = schedule == "interleaved_1f1b";
        for (const int64_t virtual_stages :
             chunks ? space_.virtual_stages : std::vector<int64_t>{1}) {
          point.virtual_stages = virtual_stages;
          for (const auto& [capacity, rebalancing] : choices(layout)) {
            point.capacity_factor = capacity;
            point.rebalancing = rebalancing;
            for (const bool overlap : space_.overlap) {
              if (overlap && layout.ep == 1) continue;
              point.overlap = overlap;
              if (has_first_schedule(point)
                      ? pass != simple_pass
                      : pass != PlanPass::rest && pass != PlanPass::count_rest)
                continue;
              if (pass == PlanPass::count_rest) {
                const auto count =
                    static_cast<int64_t>(space_.micro_batch.size() * space_.cpu_offload.size() *
                                         space_.recompute.size());
                found_.combinations += count;
                found_.beaten += count;
                continue;
              }
              bool too_large = false;
              for (const int64_t micro_batch : space_.micro_batch) {
                point.micro_batch = micro_batch;
                too_large = cheapest_that_fits(point, too_large) == Verdict::does_not_fit;
              }
            }
          }
        }
      }
    }
  }

  /// Of capacity and of where experts work: on one rank there is nothing to rebalance.
  std::vector<std::pair<std::optional<double>, std::string>> choices(
      const PlanLayout& layout) const {
    std::vector<std::pair<std::optional<double>, std::string>> all;
    for (const auto& capacity : space_.capacity_factor) {
      bool first = true;
      for (const std::string& rebalancing : space_.rebalancing) {
        if (layout.ep > 1)
          all.emplace_back(capacity, rebalancing);
        else if (std::exchange(first, false))
          all.emplace_back(capacity, "none");
      }
    }
    return all;
  }

  enum class Verdict { refused, dominated, does_not_fit, fits };

  /// Recompute and offload only ever cost time: the first that fits is the fastest. And where
  /// nothing of a smaller micro-batch fits (`smaller_is_too_large`), nothing of this one does.
  Verdict cheapest_that_fits(PlanPoint point, bool smaller_is_too_large) {
    Verdict verdict = smaller_is_too_large ? Verdict::does_not_fit : Verdict::refused;
    for (const bool offload : space_.cpu_offload)
      for (const std::string& recompute : space_.recompute) {
        ++found_.combinations;
        if (smaller_is_too_large) {
          ++found_.too_large;
          continue;
        }
        if (verdict == Verdict::fits) {
          ++found_.slower_by_rule;
          continue;
        }
        point.cpu_offload = offload;
        point.recompute = recompute;
        verdict = std::max(verdict, consider(point));
      }
    return verdict;
  }

  Verdict consider(const PlanPoint& point) {
    const Scenario scenario = planned(scenario_, point);
    const std::string rule = broken_rule(scenario);
    if (!rule.empty()) {
      ++found_.refused;
      ++found_.refused_by[rule];
      return Verdict::refused;
    }
    PlanResult result{point, {}, 0};
    const int64_t state = state_bytes(scenario, machine_.gpus_per_node);
    if (state > machine_.memory_bytes) {
      ++found_.state_too_large;
      result.figures.peak_bytes = state;
      keep_if_closest(result);
      return Verdict::does_not_fit;
    }
    if (known_ && !is_simple(point))
      if (const auto verdict = dominated_by_known(point, state)) {
        ++found_.dominated;
        return *verdict;
      }
    ++found_.estimated;
    result.figures = estimate_(scenario);
    if (result.figures.peak_bytes > machine_.memory_bytes) {
      ++found_.too_large;
      keep_if_closest(result);
      return Verdict::does_not_fit;
    }
    found_.fitting.push_back(result);
    return Verdict::fits;
  }

  /// The space's first schedule and overlap, and no weights gathered: what others are bounded by.
  bool is_simple(const PlanPoint& point) const {
    return !gathers(point.sharding) && has_first_schedule(point);
  }
  bool has_first_schedule(const PlanPoint& point) const {
    return (point.layout.pp == 1 || point.schedule == space_.schedule.front()) &&
           point.overlap == space_.overlap.front();
  }

  /// The figures of a point that bounds another's, and what the other may hide at best.
  struct Bound {
    const PlanFigures* figures = nullptr;  ///< null: there is none
    Hidden hidden;
    double most_of_transient = 1;  ///< that the other may hold, as multiples of the bound's
  };

  /// For weights that are gathered the same point with every weight where it is used; for another
  /// schedule or overlap the first of the space. What comes and goes in a step (activations above
  /// all) is the same, or more.
  Bound bound_of(PlanPoint point) {
    Bound bound;
    const bool first_schedule = has_first_schedule(point);
    if (!first_schedule) {
      if (space_.schedule.front() != "1f1b" || space_.overlap.front()) return {};
      bound.hidden.exchange = point.overlap;
      bound.hidden.bubble = hidden_bubble(point.schedule, point.virtual_stages);
      bound.most_of_transient = most_of_activations(point.schedule);
      point.schedule = "1f1b";
      point.virtual_stages = 1;
      point.overlap = false;
      bound.figures = seen(point);
    }
    if (!bound.figures && gathers(point.sharding)) {
      bound.hidden.gathering = true;
      point.sharding = "NO_SHARD";
    }
    if (!bound.figures) bound.figures = whole(point);
    return bound;
  }

  /// Whether something known is as good as the bound. A point that surely fits is as good as
  /// estimated: what would need more recompute is slower.
  std::optional<Verdict> dominated_by_known(const PlanPoint& point, int64_t state) {
    const Bound bound = bound_of(point);
    if (!bound.figures) return std::nullopt;
    const PlanFigures& b = *bound.figures;
    const double tokens_per_second = promise(b, bound.hidden),
                 bytes = least_bytes(b, state, bound.hidden);
    const auto matched_by = [&](const std::vector<PlanResult>& found) {
      return is_matched(found, tokens_per_second, bytes, b.dropped_share, machine_.ample_bytes());
    };
    if (!matched_by(*known_) && !matched_by(found_.fitting)) return std::nullopt;
    const double most =
        static_cast<double>(b.lasting_bytes) +
        bound.most_of_transient * static_cast<double>(b.peak_bytes - b.lasting_bytes);
    return most <= static_cast<double>(machine_.memory_bytes) ? Verdict::fits : Verdict::dominated;
  }

  /// Figures of a point of an earlier task; null: it fitted not or was not estimated.
  const PlanFigures* seen(const PlanPoint& point) const {
    const auto at = seen_.find(key(point));
    return at == seen_.end() ? nullptr : at->second;
  }

  /// Figures of a point whether or not it fits; null where it breaks a rule. Kept, since several
  /// ways to shard ask for them.
  const PlanFigures* whole(const PlanPoint& point) {
    if (const PlanFigures* figures = seen(point)) return figures;
    auto at = whole_.find(key(point));
    if (at == whole_.end()) {
      const Scenario scenario = planned(scenario_, point);
      std::optional<PlanFigures> figures;
      if (broken_rule(scenario).empty()) figures = estimate_(scenario);
      at = whole_.emplace(key(point), figures).first;
    }
    return at->second ? &*at->second : nullptr;
  }

  void keep_if_closest(const PlanResult& result) {
    if (!found_.closest || result.figures.peak_bytes < found_.closest->figures.peak_bytes)
      found_.closest = result;
  }

  const Scenario& scenario_;
  const PlanSpace& space_;
  const PlanMachine& machine_;
  const EstimateStep& estimate_;
  const std::vector<PlanResult>* known_ = nullptr;
  std::map<Key, const PlanFigures*> seen_;
  std::map<Key, std::optional<PlanFigures>> whole_;
  PlanSearch found_;
};

}  // namespace

PlanSearch search_layout(const Scenario& scenario, const PlanSpace& space, const PlanTask& task,
                         const PlanMachine& machine, const EstimateStep& estimate) {
  return Search(scenario, space, machine, estimate).run(task);
}

namespace {

void add(PlanSearch& to, const PlanSearch& part) {
  to.combinations += part.combinations;
  to.refused += part.refused;
  to.state_too_large += part.state_too_large;
  to.too_large += part.too_large;
  to.slower_by_rule += part.slower_by_rule;
  to.beaten += part.beaten;
  to.dominated += part.dominated;
  to.estimated += part.estimated;
  to.fitting.insert(to.fitting.end(), part.fitting.begin(), part.fitting.end());
  for (const auto& [rule, count] : part.refused_by) to.refused_by[rule] += count;
  if (part.closest &&
      (!to.closest || part.closest->figures.peak_bytes < to.closest->figures.peak_bytes))
    to.closest = part.closest;
}

}  // namespace

PlanSearch search_plan_by(const Scenario& scenario, const PlanSpace& space,
                          const PlanMachine& machine, const RunTasks& run) {
  const std::vector<PlanLayout> layouts = plan_layouts(space, scenario);
  if (layouts.empty())
    throw Error(ErrorClass::configuration,
                fmt::format("plan: no sizes of the space make a grid of {} GPUs",
                            scenario.distributed_config.world_size));
  PlanSearch found;
  std::vector<std::vector<PlanResult>> fitting(layouts.size());  // of each layout, so far
  const auto pass_over = [&](const std::vector<size_t>& which, const auto& pass_of) {
    const auto known = std::make_shared<const std::vector<PlanResult>>(
        pareto_front(found.fitting, machine.ample_bytes()));
    std::vector<PlanTask> tasks;
    for (const size_t i : which)
      tasks.push_back({layouts[i], pass_of(i, *known), known, fitting[i]});
    const std::vector<PlanSearch> parts = run(tasks);
    for (size_t t = 0; t < parts.size(); ++t) {
      add(found, parts[t]);
      std::vector<PlanResult>& of_layout = fitting[which[t]];
      of_layout.insert(of_layout.end(), parts[t].fitting.begin(), parts[t].fitting.end());
    }
  };
  std::vector<size_t> all(layouts.size());
  std::iota(all.begin(), all.end(), size_t{0});
  // The most promising first, in rounds that grow: what they find shows what others have to beat.
  const auto pass_in_rounds = [&](const Hidden& hidden, const auto& pass_of) {
    std::vector<double> most(all.size());
    for (const size_t i : all)
      for (const PlanResult& r : fitting[i])
        most[i] = std::max(most[i], promise(r.figures, hidden));
    std::vector<size_t> order = all;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return most[a] > most[b]; });
    size_t size = kFirstRound;
    for (auto from = order.cbegin(); from != order.cend(); size *= 2) {
      const auto to = from + std::min(std::ptrdiff_t(size), order.cend() - from);
      pass_over({from, to}, pass_of);
      from = to;
    }
  };

  pass_over(all, [](size_t, const auto&) { return PlanPass::simple; });
  Hidden hidden = most_hidden(space);
  hidden.gathering = true;
  pass_in_rounds(hidden, [](size_t, const auto&) { return PlanPass::gathering; });
  // Where nothing fits yet, another schedule may need less.
  const bool none = found.fitting.empty();
  hidden.gathering = false;
  pass_in_rounds(hidden, [&](size_t i, const std::vector<PlanResult>& front) {
    const auto may_be_on_it = [&](const PlanResult& r) {
      const PlanFigures& f = r.figures;
      return !is_matched(front, promise(f, hidden), least_bytes(f, f.lasting_bytes, hidden),
                         f.dropped_share, machine.ample_bytes());
    };
    return none || std::any_of(fitting[i].begin(), fitting[i].end(), may_be_on_it)
               ? PlanPass::rest
               : PlanPass::count_rest;
  });
  std::stable_sort(found.fitting.begin(), found.fitting.end(),
                   [](const PlanResult& a, const PlanResult& b) {
                     if (a.figures.tokens_per_second != b.figures.tokens_per_second)
                       return a.figures.tokens_per_second > b.figures.tokens_per_second;
                     return a.figures.peak_bytes < b.figures.peak_bytes;
                   });
  return found;
}

PlanSearch search_plan(const Scenario& scenario, const PlanSpace& space, const PlanMachine& machine,
                       const EstimateStep& estimate) {
  return search_plan_by(scenario, space, machine, [&](const std::vector<PlanTask>& tasks) {
    std::vector<PlanSearch> parts;
    for (const PlanTask& task : tasks)
      parts.push_back(search_layout(scenario, space, task, machine, estimate));
    return parts;
  });
}

double chance_faster(double a_seconds, double b_seconds, double median_error) {
  const double sigma = median_error / 0.6745;  // half of a normal variable is within 0.6745 sigma
  if (sigma <= 0) return a_seconds < b_seconds ? 1 : a_seconds > b_seconds ? 0 : 0.5;
  return 0.5 * std::erfc(-std::log(b_seconds / a_seconds) / (2 * sigma));
}

double gpu_hours(double tokens, double tokens_per_second, int64_t gpus) {
  return tokens / tokens_per_second * static_cast<double>(gpus) / 3600;
}

}  // namespace moetwin
