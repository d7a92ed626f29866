#pragma once
// The sections of a run's page as data; the scripts of the page draw them. A section that the files
// say nothing about is null or empty.

#include <json/value.h>

#include "analysis/result/run.h"
#include "analysis/stability/stability.h"

namespace moetwin {

Json::Value facts_section(const Run& run);
Json::Value parts_section(const Run& run);
/// Ops by device time, where steps were profiled: key `profile` of the report as the run shows it.
Json::Value profile_section(const Run& run);
Json::Value memory_section(const Run& run);
Json::Value traffic_section(const Run& run);
Json::Value collectives_section(const Run& run);
Json::Value layout_section(const Run& run);
Json::Value timeline_section(const Run& run);
/// Loads of every layer over time, in hundredths of the mean load.
Json::Value loads_section(const Run& run);
/// Assignments by source rank and expert column.
Json::Value matrix_section(const Run& run);
/// A figure of the probe over time, of the layers that have most of it.
Json::Value probe_section(const Run& run, std::vector<double> ProbeSeries::*figure);
/// Steps to mark in charts over time.
Json::Value marks_section(const StabilityReport& stability);

/// All of one run.
Json::Value run_section(const Run& run);

}  // namespace moetwin
