#pragma once
// Where the verdicts draw their lines. Calibrated on the runs of a prototype, whose numbers are in
// docs/diagnose.md: seeds 1-10 to set them, 11-30 to test them.

#include <cstdint>

namespace moetwin {

struct StabilityOptions {
  // Windows, in rows of the series (probes or steps).
  int64_t window = 800;      ///< longest; shorter runs use 40% of their rows, at least 128
  int64_t skip_steps = 300;  ///< routers find their way: nothing of these steps alone is a verdict
  int64_t fewest_rows = 64;  ///< below: no verdict on movement

  // Movement on the probe batch: the middle of the gap between calm and sick runs.
  double churn = 0.023, amplitude = 0.16;
  double strong_churn = 0.035, strong_amplitude = 0.22;
  double periodic = 0.10;
  // Sliding checks for onset and end: 64 rows every 16, held for 10.
  int64_t check_rows = 64, check_every = 16, hold = 10;
  double check_churn = 0.02, check_amplitude = 0.10;

  // Movement of training loads where there is no probe: amplitude beyond sampling, or the amplitude
  // of what repeats, total x sqrt(autocorrelation at the period), which sampling does not raise.
  double load_amplitude = 0.20, load_periodic = 0.10, load_strong = 0.35;
  double wave_amplitude = 0.10, wave_periodic = 0.25;
  double burst_time = 0.3;  ///< time away from the usual loads below which it is bursts

  double imbalanced_cv = 0.6, imbalanced_max = 1.9;
  double burst_max = 2.5, burst_usual = 1.5;  ///< highest load in a burst, and usually
  double collapsed_dead = 0.3;                ///< share of experts below a tenth of the mean load
  double collapsed_entropy = 0.6;             ///< of mean loads, relative to ln E
  double saturated_entropy = 0.05, harmful = 0.6;

  // What the run says of itself; 0: unknown.
  double top_k = 0;
  int64_t expert_columns = 0;  ///< EP columns over which experts are spread
};

}  // namespace moetwin
