#include "tests/scenarios/routing_family.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetwin::test {

std::vector<FamilyMember> routing_family() {
  const std::vector<std::string> sick{"oscillating", "rotating", "collapsed", "diverging"};
  std::vector<FamilyMember> all;
  const auto oscillates = [&](const char* name, double shortest, double longest, int64_t earliest,
                              int64_t latest) {
    all.push_back({name, {"oscillating"}, {}, shortest, longest, earliest, latest});
  };
  // The gate's learning rate jumps after step 1,000.
  oscillates("routing-oscillation", 4, 12, 990, 1060);
  oscillates("routing-oscillation-stale", 20, 34, 990, 1060);
  // What does not cure it.
  oscillates("noise", 0, 0, 990, 1060);
  oscillates("balance-loss", 0, 0, 990, 1060);
  oscillates("z-loss", 0, 0, 990, 1060);
  all.push_back({"shared-expert", {"oscillating", "collapsed", "imbalanced"}, {"stable"}});
  // What does, and what it leaves.
  all.push_back({"routing-oscillation-cured", {"stable"}, sick});
  all.push_back({"gate-lr", {}, {"oscillating", "rotating", "collapsed"}});
  all.push_back({"expert-init", {}, {"oscillating/strong", "rotating"}});
  all.push_back({"top1-vs-top2", {}, {"oscillating", "rotating"}});
  // Around a period of 4 (d + 1) with d = 4, and with ten steps of average besides.
  oscillates("bias-oscillation", 14, 26, 0, 0);
  oscillates("bias-oscillation-average", 30, 90, 0, 0);
  all.push_back({"bias-oscillation-cured", {"stable"}, sick});
  all.push_back({"router-collapse", {"collapsed"}, {"oscillating", "stable"}});
  all.push_back({"load-imbalance", {"imbalanced"}, {"oscillating", "stable"}});
  all.push_back({"capacity-drop", {"imbalanced", "collapsed"}, {"oscillating", "stable"}});
  FamilyMember stable{"routing-stable", {"stable"}, sick};
  stable.least_of_ten = 10;
  all.push_back(stable);
  return all;
}

std::string shortcoming(const FamilyMember& member, int64_t seed) {
  const TemporaryDirectory directory;
  const std::string run = directory.path() + "/run";
  const RunOutcome outcome = run_scenario(member.name + ".json", run,
                                          {"--set", fmt::format("training_config.seed={}", seed)});
  if (outcome.exit_code != 0) throw std::runtime_error(outcome.errors);
  std::ostringstream out, err;
  if (run_program({"diagnose", run, "--json"}, {out, err}) != 0)
    throw std::runtime_error(err.str());
  Json::Value diagnosis;
  std::istringstream(out.str()) >> diagnosis;
  std::string kinds;
  const Json::Value* oscillating = nullptr;
  for (const Json::Value& verdict : diagnosis["verdicts"]) {
    kinds += (kinds.empty() ? "" : ", ") + verdict["kind"].asString() + "/" +
             verdict["strength"].asString();
    if (verdict["kind"] == "oscillating") oscillating = &verdict;
  }
  const auto holds = [&](const std::string& wanted) {
    return std::any_of(diagnosis["verdicts"].begin(), diagnosis["verdicts"].end(),
                       [&](const Json::Value& verdict) {
                         const std::string kind = verdict["kind"].asString();
                         return kind == wanted ||
                                kind + "/" + verdict["strength"].asString() == wanted;
                       });
  };
  const std::string who = fmt::format("{}, seed {}: {}", member.name, seed, kinds);
  if (!member.any_of.empty() && std::none_of(member.any_of.begin(), member.any_of.end(), holds))
    return who;
  if (std::any_of(member.none_of.begin(), member.none_of.end(), holds)) return who;
  if (!oscillating) return "";
  const auto outside = [&](const char* key, double lowest, double highest) {
    if (highest == 0) return false;
    const Json::Value& value = (*oscillating)[key];
    return !value.isNumeric() || value.asDouble() < lowest || value.asDouble() > highest;
  };
  if (outside("period_steps", member.shortest_period, member.longest_period))
    return who + " with period " + (*oscillating)["period_steps"].asString();
  if (outside("onset_step", static_cast<double>(member.earliest_onset),
              static_cast<double>(member.latest_onset)))
    return who + " from step " + (*oscillating)["onset_step"].asString();
  return "";
}

}  // namespace moetwin::test
