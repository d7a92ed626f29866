#pragma once
// Which machine profile a published row was measured on, told from its columns.

#include <string>

#include "analysis/validate/published.h"

namespace moetwin {

struct RowMachine {
  std::string profile;              ///< a name of scenarios/clusters; empty: there is none
  std::string reason;               ///< why there is none
  bool other_hardware = false;      ///< not of the GPUs in scope
  bool hosts_share_nvlink = false;  ///< a NVLink domain of several hosts (NVL72)
};

/// The GPU's model in capitals and digits alone: "A100", "H100", "GB200", ...; empty: not in scope.
std::string gpu_model(const PublishedRow& row);

/// From gpu, gpu_mem_gb, gpus_per_node, nics_per_node, nic_gbps, platform, fabric, interconnect.
/// `across_nodes`: whether the fabric matters; a row that does not state it has no machine then.
RowMachine machine_of(const PublishedRow& row, bool across_nodes);

}  // namespace moetwin
