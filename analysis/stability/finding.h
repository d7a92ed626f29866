#pragma once
// What the analysis says about a run: a verdict with evidence, confidence and what acts on it.

#include <json/value.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/record/report.h"

namespace moetwin {

/// A scenario key that acts on a verdict.
struct Knob {
  std::string key, change;  ///< "routing.noise.scale", "0.1, gaussian"
  std::string effect;       ///< what it did in measured runs
};

struct Finding {
  std::string kind;    ///< stable | imbalanced | collapsed | oscillating | rotating | diverging
  int64_t layer = -1;  ///< -1: the whole run
  int64_t onset_step = -1;  ///< -1: not of one step; so for the others
  int64_t end_step = -1;    ///< last step of it; -1: it still held at the end
  double period_steps = -1;
  double amplitude = -1;                  ///< units of the mean load
  double confidence = 0;                  ///< 0.5 at the threshold, towards 1 beyond it
  int64_t checks = 0;                     ///< oscillating: sliding checks that held in a row
  std::string strength;                   ///< oscillating: "strong" | "weak"; else empty
  std::vector<int64_t> experts, against;  ///< that swap with each other, or that are hot or dead
  std::string evidence;
  std::vector<Knob> knobs;
};

/// One line per knob.
std::string advice_text(const Finding& finding);
/// As report.json's verdicts[] has it, with end_step, strength, experts and knobs besides.
Json::Value finding_json(const Finding& finding);
Verdict to_verdict(const Finding& finding);

}  // namespace moetwin
