#include "backends/sim/cluster/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "backends/sim/cluster/figures.h"
#include "core/base/error.h"

namespace moetwin {
namespace {

namespace fs = std::filesystem;
using Rule = Figures::Rule;

LinkProfile read_link(Figures& in, const std::string& path) {
  LinkProfile link;
  link.bandwidth = BytesPerSecond(in.figure(path + ".bytes_per_second", Rule::positive));
  link.efficiency = in.figure(path + ".efficiency", Rule::fraction);
  link.latency = Seconds(in.figure(path + ".latency_seconds", Rule::not_negative));
  return link;
}

// "default" and, where they differ, single kinds.
std::array<double, kKernelKinds> read_efficiencies(Figures& in, const std::string& path) {
  std::array<double, kKernelKinds> values{};
  const double otherwise = in.figure(path + ".default", Rule::fraction);
  for (int k = 0; k < kKernelKinds; ++k)
    values[static_cast<size_t>(k)] = in.figure_or(
        path + "." + kernel_kind_name(static_cast<KernelKind>(k)), Rule::fraction, otherwise);
  return values;
}

std::optional<MatmulTiles> read_tiles(Figures& in, const std::string& section) {
  const std::string at = section + ".";
  if (!in.has(section)) return std::nullopt;
  MatmulTiles tiles;
  tiles.multiprocessors = in.count(at + "multiprocessors", 1);
  tiles.efficiency = in.figure(at + "efficiency", Rule::fraction);
  tiles.edge = in.figure(at + "edge", Rule::not_negative);
  tiles.tile_seconds = Seconds(in.figure(at + "tile_seconds", Rule::not_negative));
  tiles.tail = in.figure(at + "tail", Rule::fraction);
  tiles.bandwidth_efficiency = in.figure(at + "bandwidth_efficiency", Rule::fraction);
  tiles.fixed_seconds = Seconds(in.figure(at + "fixed_seconds", Rule::not_negative));
  tiles.split_seconds = Seconds(in.figure(at + "split_seconds", Rule::not_negative));
  return tiles;
}

std::optional<AttentionRate> read_attention(Figures& in, const std::string& name) {
  const std::string at = "gpu.attention." + name;
  if (!in.has(at)) return std::nullopt;
  AttentionRate rate;
  rate.efficiency_64 = in.figure(at + ".efficiency_64", Rule::fraction);
  rate.efficiency_128 = in.figure(at + ".efficiency_128", Rule::fraction);
  rate.ramp = in.figure(at + ".ramp_tokens", Rule::not_negative);
  rate.diagonal = in.figure(at + ".diagonal_tokens", Rule::not_negative);
  return rate;
}

GpuProfile read_gpu(Figures& in) {
  GpuProfile gpu;
  gpu.name = in.text_or("gpu.name", "");
  gpu.memory = Bytes(in.figure("gpu.memory_bytes", Rule::positive));
  gpu.context = Bytes(in.figure_or("gpu.context_bytes", Rule::not_negative, 0));
  gpu.communicator = Bytes(in.figure_or("gpu.communicator_bytes", Rule::not_negative, 0));
  gpu.memory_bandwidth = BytesPerSecond(in.figure("gpu.memory_bytes_per_second", Rule::positive));
  for (DType d : {DType::f32, DType::bf16, DType::f16, DType::f64})
    gpu.matmul_peak[static_cast<size_t>(d)] = FlopPerSecond(
        in.figure(std::string("gpu.matmul_flop_per_second.") + dtype_name(d), Rule::positive));
  const std::string tf32 = "gpu.matmul_flop_per_second.tf32";
  const double tf32_peak = in.figure_or(tf32, Rule::positive, 0);
  const std::string products = in.text_or("gpu.fp32_products", "fp32");
  if (products == "tf32" && tf32_peak > 0)
    gpu.matmul_peak[static_cast<size_t>(DType::f32)] = FlopPerSecond(tf32_peak);
  else if (products != "fp32")
    in.fault("gpu.fp32_products",
             products == "tf32" ? "tf32 needs " + tf32
                                : fmt::format("\"{}\" is not known; legal: fp32, tf32", products));
  gpu.vector_peak = FlopPerSecond(in.figure("gpu.vector_flop_per_second.fp32", Rule::positive));
  gpu.vector_peak_fp64 =
      FlopPerSecond(in.figure("gpu.vector_flop_per_second.fp64", Rule::positive));
  gpu.compute_efficiency = read_efficiencies(in, "gpu.compute_efficiency");
  gpu.bandwidth_efficiency = read_efficiencies(in, "gpu.bandwidth_efficiency");
  gpu.tiles = read_tiles(in, "gpu.matmul_tiles");
  gpu.fp8_tiles = read_tiles(in, "gpu.matmul_tiles_fp8");
  gpu.fp8_peak = FlopPerSecond(in.figure_or("gpu.matmul_flop_per_second.fp8", Rule::positive, 0));
  for (size_t k = 0; k < gpu.attention.size(); ++k)
    gpu.attention[k] = read_attention(in, attention_kernel_name(static_cast<AttentionKernel>(k)));
  if (in.has("gpu.communication_multiprocessors")) {
    gpu.communication_multiprocessors = in.count("gpu.communication_multiprocessors", 0);
    if (!gpu.tiles || gpu.communication_multiprocessors >= gpu.tiles->multiprocessors)
      in.fault("gpu.communication_multiprocessors",
               "must be less than gpu.matmul_tiles.multiprocessors");
  }
  gpu.sustained = in.figure_or("gpu.sustained_clock", Rule::fraction, 1);
  gpu.kernel_seconds = Seconds(in.figure("gpu.kernel_seconds", Rule::not_negative));
  gpu.launch_overhead_seconds =
      Seconds(in.figure("gpu.launch_overhead_seconds", Rule::not_negative));
  return gpu;
}

void read_slow_ranks(Figures& in, std::map<int64_t, double>& slow) {
  const Json::Value* list = in.any("slow_ranks");
  if (!list) return;
  if (!list->isObject()) return in.fault("slow_ranks", "must be {\"rank\": factor, ...}");
  for (const std::string& rank : list->getMemberNames()) {
    const Json::Value& factor = (*list)[rank];
    const bool number = !rank.empty() && rank.size() < 10 &&
                        rank.find_first_not_of("0123456789") == std::string::npos;
    if (!number || !factor.isNumeric() || factor.asDouble() <= 0)
      in.fault("slow_ranks." + rank, "must be a rank with a factor greater than 0");
    else
      slow[std::stoll(rank)] = factor.asDouble();
  }
}

void read_mesh(Figures& in, std::map<int64_t, double>& share) {
  if (!in.has("nvlink.mesh")) return;
  const auto all = static_cast<double>(in.count("nvlink.mesh.links", 1));
  constexpr int64_t kMost = 16;  // meshes are small; a base may have more GPUs
  for (int64_t n = 2; n <= kMost; ++n) {
    const std::string key = fmt::format("nvlink.mesh.among_{}", n);
    if (!in.has(key)) continue;
    const auto links = static_cast<double>(in.count(key, 1));
    if (links > all) in.fault(key, fmt::format("{} of {} links cannot be", links, all));
    share[n] = all > 0 ? links / all : 1;
  }
}

void read_corrections(Figures& in, std::vector<CorrectionEntry>& corrections) {
  const Json::Value* list = in.any("corrections");
  if (!list) return;
  if (!list->isArray()) return in.fault("corrections", "must be a list");
  for (Json::ArrayIndex i = 0; i < list->size(); ++i) {
    const Json::Value& entry = (*list)[i];
    const bool shaped = entry.isObject() && entry["op"].isString() && entry["bytes"].isIntegral() &&
                        entry["bytes"].asInt64() >= 0 && entry["factor"].isNumeric() &&
                        entry["factor"].asDouble() > 0 && entry["source"].isString() &&
                        (entry["group"].isNull() || entry["group"].isString());
    if (!shaped)
      in.fault(fmt::format("corrections[{}]", i),
               "must be {\"op\", \"group\" (of a collective), \"bytes\": integer of at least 0, "
               "\"factor\": number greater than 0, \"source\"}");
    else
      corrections.push_back({entry["op"].asString(), entry["group"].asString(),
                             entry["bytes"].asInt64(), entry["factor"].asDouble()});
  }
}

}  // namespace

const char* kernel_kind_name(KernelKind kind) {
  constexpr const char* kNames[] = {"gemm",        "grouped_gemm", "attention",
                                    "elementwise", "reduction",    "gather",
                                    "sort",        "optimizer",    "copy"};
  return kNames[static_cast<int>(kind)];
}

namespace {

std::string text_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// The file of the profile `name`; empty: there is none.
std::string find_profile(const std::string& name, const std::vector<std::string>& directories) {
  std::vector<std::string> candidates;
  const bool is_path = name.find('/') != std::string::npos || fs::path(name).extension() == ".json";
  if (is_path) candidates.push_back(name);
  for (const std::string& d : directories)
    candidates.push_back((fs::path(d) / (is_path ? name : name + ".json")).string());
  std::error_code none;
  for (const std::string& file : candidates)
    if (fs::is_regular_file(file, none)) return file;
  return "";
}

/// Reads the base that `in` names, and its base, into it. `inner`: the profiles on the way here.
void take_bases(Figures& in, const std::string& file, std::vector<std::string> directories,
                std::vector<std::string> inner) {
  const std::string base = in.text_or("base", "");
  if (base.empty()) return;
  directories.insert(directories.begin(), fs::path(file).parent_path().string());
  const std::string found = find_profile(base, directories);
  inner.push_back(fs::path(file).stem().string());
  const bool circle = !found.empty() && std::find(inner.begin(), inner.end(),
                                                  fs::path(found).stem().string()) != inner.end();
  if (found.empty() || circle)
    throw Error(ErrorClass::configuration,
                fmt::format("{}: base: \"{}\" {}", file, base,
                            circle ? "leads back to this profile" : "is no machine profile"));
  Figures outer(text_of(found), found, "gpu");
  take_bases(outer, found, directories, inner);
  in.take_base(outer);
}

}  // namespace

ClusterProfile parse_cluster_profile(const std::string& text, const std::string& name,
                                     const std::vector<std::string>& directories) {
  Figures in(text, name, "gpu");
  take_bases(in, name, directories, {});
  ClusterProfile profile;
  profile.name = fs::path(name).stem().string();
  profile.path = name;
  profile.description = in.text_or("description", "");
  profile.gpu = read_gpu(in);
  profile.gpus_per_node = in.count("node.gpus", 1);
  profile.nics_per_node = in.count("node.nics", 1);
  if (profile.nics_per_node > 0 && profile.gpus_per_node % profile.nics_per_node != 0)
    in.fault("node.nics", fmt::format("{} must divide node.gpus, which is {}",
                                      profile.nics_per_node, profile.gpus_per_node));
  if (in.has("max_nodes")) profile.max_nodes = in.count("max_nodes", 1);
  profile.nvlink = read_link(in, "nvlink");
  profile.nic = read_link(in, "nic");
  profile.pcie = read_link(in, "pcie");
  read_mesh(in, profile.mesh_share);
  profile.fabric = read_fabric(in);
  profile.collective_seconds = Seconds(in.figure("collective_seconds", Rule::not_negative));
  if (in.has("nccl")) profile.nccl_section = read_nccl(in);
  profile.price_per_gpu_hour = in.figure_or("price_per_gpu_hour", Rule::not_negative, 0);
  profile.currency = in.text_or("currency", "USD");
  read_slow_ranks(in, profile.slow_ranks);
  profile.faults = read_faults(in);
  read_corrections(in, profile.corrections);
  in.finish();
  profile.text = in.merged_text();
  for (DType d : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const std::string key = std::string("gpu.matmul_flop_per_second.") + dtype_name(d);
    profile.sources[key] = in.source(key);
    if (d == DType::f32 && in.text_or("gpu.fp32_products", "fp32") == "tf32")
      profile.sources[key] = in.source("gpu.matmul_flop_per_second.tf32");
  }
  return profile;
}

namespace {
/// Names of the machine profiles in these directories; other JSON files (scenarios) are passed
/// over.
std::vector<std::string> known_profiles(const std::vector<std::string>& directories) {
  std::vector<std::string> names;
  for (const std::string& directory : directories) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(directory, none)) {
      if (entry.path().extension() != ".json") continue;
      try {
        parse_cluster_profile(text_of(entry.path().string()), entry.path().string(), directories);
        names.push_back(entry.path().stem().string());
      } catch (const Error&) {
        continue;
      }
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}
}  // namespace

ClusterProfile read_cluster_profile(const std::string& name,
                                    const std::vector<std::string>& directories) {
  const std::string file = find_profile(name, directories);
  if (!file.empty()) return parse_cluster_profile(text_of(file), file, directories);
  throw Error(ErrorClass::configuration,
              fmt::format("cluster.profile: \"{}\" is neither a machine profile nor a file; known "
                          "profiles: {}",
                          name, fmt::join(known_profiles(directories), ", ")));
}

}  // namespace moetwin
