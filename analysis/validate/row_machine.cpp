#include "analysis/validate/row_machine.h"

#include <array>

namespace moetwin {
namespace {

struct Rule {
  const char* model;
  const char* words;  ///< that platform, fabric or gpu has, in lower case
  const char* profile;
};

// The first that holds. Names of platforms before widths of links.
constexpr Rule kRules[] = {
    {"A100", "pairwise", "a100-pcie-pair"},
    {"A100", "a100-pcie", "a100-pcie-pair"},
    {"A100", "polaris", "polaris"},
    {"A100", "p4de", "aws-p4de"},
    {"A100", "p4d", "aws-p4d"},
    {"A100", "jean zay", "jean-zay-a100"},
    {"A100", "azure nd a100 v4", "azure-nd-a100"},
    {"A100", "800 gb/s per node", "a100-4hdr"},
    {"A100", "400 gb/s per node", "a100-4x100"},
    {"A100", "4x100 gb", "a100-4x100"},
    {"A100", "4 x 200", "a100-4hdr"},
    {"A100", "4 x 100", "a100-4x100"},
    {"A100", "8 x 100", "a100-8edr"},
    {"H100", "pairwise", "h100-pcie-pair"},
    {"H100", "800 gb/s per node", "h100-2ndr"},
    {"H100", "aws p5", "aws-p5"},
    {"H100", "oci", "oci-h100"},
    {"H100", "coreweave", "coreweave-h100"},
    {"H100", "96gb", "h100-96g"},
    {"H100", "4 x 400", "h100-4ndr"},
    {"H100", "", "dgx-h100"},
    {"H800", "", "hgx-h800"},
    {"H200", "p5en", "aws-p5en"},
    {"H200", "", "hgx-h200"},
    {"B200", "p6-b200", "aws-p6-b200"},
    {"B200", "", "hgx-b200"},
    {"GB200", "", "gb200-nvl72"},
    {"GB300", "", "gb300-nvl72"},
    {"V100", "jean zay", "jean-zay-v100"},
    {"V100", "dgx-2", "dgx2-v100"},
    {"V100", "sxm3", "dgx2-v100"},
    {"V100", "", "dgx1-v100"},
};

}  // namespace

std::string gpu_model(const PublishedRow& row) {
  const std::string gpu = lower_case(row.text("gpu"));
  // Longer names first: "gb200" has "b200" in it. A800 is an A100 with fewer NVLinks, of which the
  // rows in question use none.
  constexpr std::array<std::array<const char*, 2>, 13> kModels = {{{"gb300", "GB300"},
                                                                   {"gb200", "GB200"},
                                                                   {"gh200", ""},
                                                                   {"b300", ""},
                                                                   {"mi", ""},
                                                                   {"gaudi", ""},
                                                                   {"b200", "B200"},
                                                                   {"h200", "H200"},
                                                                   {"h100", "H100"},
                                                                   {"h800", "H800"},
                                                                   {"a100", "A100"},
                                                                   {"a800", "A100"},
                                                                   {"v100", "V100"}}};
  for (const auto& [word, model] : kModels)
    if (gpu.find(word) != std::string::npos) return model;
  return "";
}

RowMachine machine_of(const PublishedRow& row, bool across_nodes) {
  RowMachine machine;
  const std::string model = gpu_model(row), gpu = lower_case(row.text("gpu"));
  if (model.empty()) {
    machine.other_hardware = true;
    machine.reason = row.has("gpu") ? "GPU: " + row.text("gpu") : "GPU not stated";
    return machine;
  }
  if (gpu.find('/') != std::string::npos) {
    machine.reason = "several types of GPU in one job";
    return machine;
  }
  std::string where = gpu + "|" + lower_case(row.text("platform")) + "|" +
                      lower_case(row.text("fabric")) + "|" + lower_case(row.text("interconnect"));
  // Width of the links where the columns state it: "4 x 200".
  if (row.has("nics_per_node") && row.has("nic_gbps"))
    where += "|" + row.text("nics_per_node") + " x " + row.text("nic_gbps");
  const bool named = where.find("xxrjun") != std::string::npos;
  const bool silent = !row.has("fabric") && !row.has("platform") && !row.has("nic_gbps");
  if (across_nodes && !named && (silent || row.mentions("fabric", "not stated"))) {
    machine.reason = "between nodes, and the fabric is not stated";
    return machine;
  }
  if (where.find("pairwise") != std::string::npos &&
      (across_nodes || row.whole("gpus_per_node", 1) > 2)) {
    machine.reason = "GPUs joined in pairs: beyond a pair the way is not stated";
    return machine;
  }
  for (const Rule& rule : kRules) {
    if (model != rule.model || where.find(rule.words) == std::string::npos) continue;
    machine.profile = rule.profile;
    break;
  }
  // How NCCL reaches the NICs there is said beside its settings.
  if (machine.profile == "polaris" && row.mentions("env_algo", "aws-ofi-nccl"))
    machine.profile = "polaris-default";
  if (machine.profile.empty())
    machine.profile = row.text("gpu_mem_gb") == "40" || gpu.find("40gb") != std::string::npos
                          ? "dgx-a100-40g"
                          : "dgx-a100-80g";
  machine.hosts_share_nvlink = model == "GB200" || model == "GB300";
  return machine;
}

}  // namespace moetwin
