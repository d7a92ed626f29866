#pragma once
// TensorBoard event files: scalars by step, and the loads of experts as histograms.

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/result/run.h"

namespace moetwin {

/// One record of an event file: length, its masked checksum, the bytes, their masked checksum
/// (TFRecord framing).
std::string event_record(const std::string& event);

/// tensorflow.Event messages, protobuf-encoded. `wall_time` in seconds since 1970.
std::string version_event(double wall_time);
std::string scalar_event(double wall_time, int64_t step, const std::string& tag, double value);
std::string text_event(double wall_time, int64_t step, const std::string& tag,
                       const std::string& text);

/// The event file of a run: every column of steps.csv as a scalar (NaN left out), per layer load
/// CV, max / mean, entropy and churn under layer_<i>/, and the verdicts as text. Wall times are the
/// machine's clock from 0 on, so that the same run gives the same bytes.
std::string tensorboard_events(const Run& run);

/// Writes `directory`/events.out.tfevents.<10 digits>.moetwin and returns its path.
std::string write_tensorboard(const Run& run, const std::string& directory);

}  // namespace moetwin
