#pragma once
// Tables of collectives' times, one row each, as published measurements are collected.

#include <map>
#include <string>
#include <vector>

#include "backends/sim/calibration/measurements.h"

namespace moetwin {

/// Columns: collective, nodes, gpus_per_node, size_bytes, and time_us or busbw_GBps (nccl-tests'
/// definitions); optional: series, gpu, env_algo. Rows whose `gpu` has `gpu` in it and whose
/// `series` begins with one of `series` (none: all). Kinds: all_reduce, all_gather, reduce_scatter,
/// alltoall, broadcast, sendrecv (a ring of sends), p2p; rows of others are passed over. Rows that
/// cannot be read are named in `problems`. Throws Error(configuration) when a column is missing or
/// no row is left.
std::vector<CollectiveMeasurement> read_collectives_csv(
    const std::string& text, const std::string& file, const std::string& gpu,
    const std::vector<std::string>& series, double least_bytes, double most_bytes,
    int64_t profile_gpus_per_node, std::vector<std::string>& problems);

/// NCCL's variables in such a table's `env_algo`: "NCCL_ALGO=Tree NCCL_NVLS_ENABLE=0" word by word;
/// a bare "ring", "tree", "NVLS", "NVLSTree" first in the text is an NCCL_ALGO.
std::map<std::string, std::string> nccl_variables(const std::string& env_algo);

}  // namespace moetwin
