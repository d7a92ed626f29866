#include "backends/sim/collective/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

#include "core/base/error.h"
#include "core/scenario/scenario.h"

namespace moetwin {
namespace {

/// Sets `allowed` by a list of names, "^" before it: all others; unchanged where it leaves nothing.
template <size_t N, class Is>
void obey(std::string list, std::array<bool, N>& allowed, Is&& is) {
  std::transform(list.begin(), list.end(), list.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool excludes = list.rfind('^', 0) == 0;
  if (excludes) list.erase(0, 1);
  std::array<bool, N> named{};
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');)
    for (size_t i = 0; i < N; ++i) named[i] = named[i] || is(part, i);
  std::array<bool, N> left{};
  for (size_t i = 0; i < N; ++i) left[i] = allowed[i] && named[i] != excludes;
  if (std::find(left.begin(), left.end(), true) != left.end()) allowed = left;
}

/// Logarithm of the ways to choose k of n.
double log_choose(double n, double k) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

}  // namespace

const char* algorithm_name(Algorithm algorithm) {
  constexpr const char* kNames[] = {"ring", "tree", "nvls"};
  return kNames[static_cast<int>(algorithm)];
}

TokenCopies copies_of_tokens(const Scenario& scenario) {
  const RoutingConfig& routing = scenario.routing;
  return {scenario.model_config.moe_layer_config.top_k, routing.groups, routing.kept_groups};
}

double TokenCopies::reach(double share) const {
  const auto k = static_cast<double>(copies), all = static_cast<double>(groups),
             kept = static_cast<double>(kept_groups);
  if (kept >= all) return 1 - std::pow(1 - std::min(share, 1.0), k);
  // A part of a group is reached where its group is kept.
  if (share * all <= 1) return kept / all * (1 - std::pow(1 - share * all / kept, k));
  // Whole groups, of which a token keeps i: the hypergeometric chance, from i = 0 on.
  const double here = std::min(all, std::round(share * all));
  double chance = 0;
  for (double i = 1; i <= std::min(here, kept); ++i) {
    if (kept - i > all - here) continue;
    const double log_ways = log_choose(here, i) + log_choose(all - here, kept - i);
    chance += std::exp(log_ways - log_choose(all, kept)) * (1 - std::pow(1 - i / kept, k));
  }
  return chance;
}

double AllToAllChoice::different(double share) const {
  if (share <= 0 || of.copies <= 1) return 1;
  return of.reach(share) / (static_cast<double>(of.copies) * share);
}

NcclChoice nccl_choice(const std::string& algorithm, const std::map<std::string, std::string>& nccl,
                       const TokenCopies& copies) {
  NcclChoice choice;
  const auto variable = [&](const char* name) {
    const auto found = nccl.find(name);
    return found == nccl.end() ? std::string() : found->second;
  };
  if (const std::string list = variable("NCCL_PROTO"); !list.empty())
    obey(list, choice.protocols, [](const std::string& part, size_t p) {
      return part == protocol_name(static_cast<Protocol>(p));
    });
  for (int a = 0; a < kAlgorithms; ++a)
    if (algorithm == algorithm_name(static_cast<Algorithm>(a))) {
      choice.algorithms = {};
      choice.algorithms[static_cast<size_t>(a)] = true;
      return choice;
    }
  if (algorithm == "pxn")
    choice.all_to_all.way = AllToAll::pxn;
  else if (algorithm == "hierarchical")
    choice.all_to_all.way = AllToAll::hierarchical;
  else if (algorithm == "deduplicated")
    choice.all_to_all = {AllToAll::deduplicated, copies};
  else if (algorithm != "auto")
    throw Error(ErrorClass::configuration,
                fmt::format("cluster.collective_algorithm \"{}\" is not known; legal: auto, ring, "
                            "tree, nvls, pxn, hierarchical, deduplicated",
                            algorithm));
  if (variable("NCCL_NVLS_ENABLE") == "0")
    choice.algorithms[static_cast<size_t>(Algorithm::nvls)] = false;
  if (const std::string list = variable("NCCL_ALGO"); !list.empty())
    obey(list, choice.algorithms, [](const std::string& part, size_t a) {
      return part == algorithm_name(static_cast<Algorithm>(a)) ||
             (part == "nvlstree" && static_cast<Algorithm>(a) == Algorithm::nvls);
    });
  return choice;
}

}  // namespace moetwin
