#include "analysis/validate/collective_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/validate/row_machine.h"

namespace moetwin {
namespace {

constexpr double kPeakBytes = 8.0 * (1 << 30);

/// nccl-tests' PERFORMANCE.md: bus bandwidth / algorithm bandwidth.
double bus_over_algorithm(const CollectiveRow& row) {
  const auto n = static_cast<double>(row.ranks);
  if (row.kind == CollectiveKind::all_reduce) return 2 * (n - 1) / n;
  if (row.kind == CollectiveKind::send || row.kind == CollectiveKind::broadcast || row.to_next)
    return 1;
  return (n - 1) / n;
}

bool read_kind(const std::string& name, CollectiveRow& out) {
  out.to_next = name == "sendrecv";
  if (name == "all_reduce")
    out.kind = CollectiveKind::all_reduce;
  else if (name == "all_gather")
    out.kind = CollectiveKind::all_gather;
  else if (name == "reduce_scatter")
    out.kind = CollectiveKind::reduce_scatter;
  else if (name == "broadcast")
    out.kind = CollectiveKind::broadcast;
  else if (name == "alltoall" || out.to_next)
    out.kind = CollectiveKind::all_to_all_v;
  else if (name == "p2p" || name == "p2p_unidirectional")
    out.kind = CollectiveKind::send;
  else
    return false;
  return true;
}

/// Dispatch and combine of DeepEP and of libraries that took its tests over: `tokens_per_gpu`
/// tokens to `topk` of equally loaded experts, on four nodes at most. With FP8 a token has a scale
/// in fp32 for each 128 elements.
bool read_token_exchange(const PublishedRow& row, const std::string& name, CollectiveRow& out) {
  const bool dispatch = name.rfind("ep_dispatch_", 0) == 0;
  const bool fp8 = dispatch && name == "ep_dispatch_fp8";
  if (!fp8 && name != "ep_dispatch_bf16" && name != "ep_combine_bf16") return false;
  const auto tokens = row.number("tokens_per_gpu"), hidden = row.number("hidden");
  out.copies = row.whole("topk", 0);
  if (!tokens || !hidden || out.copies == 0) return false;
  out.kind = CollectiveKind::all_to_all_v;
  out.algorithm = "deduplicated";
  out.most_nodes = std::min<int64_t>(out.nodes, 4);
  const double token_bytes = fp8 ? *hidden * (1 + 4.0 / 128) : *hidden * 2;
  out.bytes = *tokens * static_cast<double>(out.copies) * token_bytes;
  return true;
}

/// Of the rows of an exchange of tokens those that DeepEP's bandwidths count.
double share_counted(const CollectiveRow& row) {
  const auto places = static_cast<double>(row.nodes > 1 ? row.most_nodes : row.ranks),
             k = static_cast<double>(row.copies);
  return places * (1 - std::pow(1 - 1 / places, k)) / k;
}

/// NCCL_ALGO's words in the column, in NCCL's own spelling.
void read_algorithm(const std::string& text, CollectiveRow& out) {
  const std::string words = lower_case(text);
  if (words == "ring" || words == "tree")
    out.algorithm = words;
  else if (words.find("nvls_enable=0") != std::string::npos ||
           words.find("nvls off") != std::string::npos)
    out.nccl_algo = "^NVLS,NVLSTree";
  else if (words.find("auto") != std::string::npos)
    return;  // says what was chosen, not what was told
  else if (words.find("nvlstree") != std::string::npos)
    out.nccl_algo = "NVLS";  // between nodes NCCL calls it NVLSTree
  else if (words.find("nvls") == 0)
    out.nccl_algo = "NVLS";
  else if (words == "sharp")
    out.nccl_algo = "CollNetChain";
}

/// Aceso's profiler (NC-SAILOR) states the bytes of one member for all_gather and reduce_scatter:
/// only so do the links of its large messages carry what those of its all_reduce do, 205 to 235
/// GB/s.
void read_convention(const PublishedRow& row, CollectiveRow& out) {
  if (!row.mentions("lib", "Aceso")) return;
  if (out.kind == CollectiveKind::all_gather || out.kind == CollectiveKind::reduce_scatter)
    out.bytes *= static_cast<double>(out.ranks);
  if (out.kind == CollectiveKind::all_gather) out.copied_bytes = out.bytes;
}

double measured_seconds(const PublishedRow& row, const CollectiveRow& work) {
  if (const auto us = row.number("time_us")) return *us * 1e-6;
  if (const auto us = row.number("inplace_time_us")) return *us * 1e-6;
  if (const auto bus = row.number("busbw_GBps"); bus && *bus > 0)
    return work.bytes * bus_over_algorithm(work) / (*bus * 1e9);
  if (const auto rate = row.number("algbw_GBps"); rate && *rate > 0)
    return work.bytes * (work.copies > 0 ? share_counted(work) : 1) / (*rate * 1e9);
  return 0;
}

}  // namespace

CollectiveRow read_collective_row(const PublishedRow& row) {
  CollectiveRow out;
  const std::string& collective = row.text("collective");
  out.nodes = std::max<int64_t>(1, row.whole("nodes", 1));
  out.ranks = row.whole("n_gpus", 0);
  // Before all else: other hardware counts neither way, whatever was measured on it.
  const RowMachine machine = machine_of(row, out.nodes > 1);
  out.other_hardware = machine.other_hardware;
  out.profile = machine.profile;
  out.hosts_share_nvlink = machine.hosts_share_nvlink;
  out.reason = machine.reason;
  if (!out.reason.empty()) return out;
  if (!read_kind(collective, out) && !read_token_exchange(row, collective, out)) {
    out.reason = fmt::format("{}: no collective of the model", collective);
  } else if (row.mentions("notes", "threshold")) {
    out.reason = "a threshold of a health check, not a measurement";
  } else if (row.series() == "NC-AICB-A100") {
    out.reason = "measured inside a workload: waiting for the slowest rank is part of it";
  } else if (out.ranks < 2) {
    out.reason = "number of GPUs not stated";
  }
  if (!out.reason.empty()) return out;
  read_algorithm(row.text("env_algo"), out);
  if (out.copies == 0) out.bytes = row.number("size_bytes").value_or(kPeakBytes);
  out.seconds = measured_seconds(row, out);
  read_convention(row, out);
  if (!(out.bytes > 0 && out.seconds > 0)) out.reason = "no time and no bandwidth";
  return out;
}

Placement place_of(const CollectiveRow& row, int64_t gpus_per_node) {
  Placement place;
  const int64_t each = row.hosts_share_nvlink ? std::min(row.ranks, gpus_per_node)
                                              : (row.ranks + row.nodes - 1) / row.nodes;
  const int64_t nodes = (row.ranks + each - 1) / each;
  if (each > gpus_per_node || each * nodes != row.ranks) {
    place.reason = fmt::format("{} GPUs on {} nodes of {}", row.ranks, row.nodes, gpus_per_node);
    return place;
  }
  place.world = (nodes - 1) * gpus_per_node + each;
  place.group = {0, nodes, gpus_per_node, each, 1};
  return place;
}

}  // namespace moetwin
