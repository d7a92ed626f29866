// Rows of gemm.csv: single kernels on one GPU.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "analysis/validate/device_time.h"
#include "analysis/validate/kernel_row.h"
#include "analysis/validate/kind.h"
#include "analysis/validate/row_machine.h"

namespace moetwin {
namespace {

Scenario kernel_scenario(const std::string& profile, const std::string& kernels) {
  Scenario s;
  s.name = "kernels";
  s.training_config.numerics = "none";
  s.training_config.dtype = "bf16";
  s.training_config.global_batch_size = 1;
  s.cluster.profile = profile;
  s.cluster.kernels = kernels;
  s.memory.on_exceed = "report";
  return s;
}

std::vector<Prediction> run_kernels(const MakeCluster& make, const Scenario& scenario,
                                    const std::vector<KernelRow>& rows) {
  std::vector<Prediction> predictions(rows.size());
  make(scenario)->run([&](Backend& device) {
    Allocator memory(device, false);
    const Stream stream = device.stream("compute");
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::vector<OpCall> calls = rows[i].calls(memory);
      predictions[i].value = device_seconds(device, stream, [&] {
        for (const OpCall& call : calls) device.launch(call, stream);
      });
    }
  });
  return predictions;
}

}  // namespace

void plan_kernels(const std::vector<PublishedRow>& rows, RowPlan& plan) {
  struct Group {
    std::vector<size_t> rows;
    std::vector<KernelRow> work;
  };
  std::map<std::pair<std::string, std::string>, Group> groups;  // by profile and kernel class
  for_each_row(rows, plan, [&](const PublishedRow& row, size_t i, RowResult& result) {
    const RowMachine machine = machine_of(row, false);
    if (machine.other_hardware) {
      result.standing = RowStanding::other_hardware;
      result.reason = machine.reason;
      return;
    }
    KernelRow work = read_kernel_row(row);
    if (!work.reason.empty() || machine.profile.empty()) {
      refuse(result, work.reason.empty() ? machine.reason : work.reason);
      return;
    }
    result.measured = work.seconds;
    result.unit = "s";
    Group& group = groups[{machine.profile, work.kernels}];
    group.rows.push_back(i);
    group.work.push_back(std::move(work));
  });
  for (auto& [key, group] : groups)
    plan.batches.push_back({group.rows, [scenario = kernel_scenario(key.first, key.second),
                                         work = std::move(group.work)](const MakeCluster& make) {
                              return run_kernels(make, scenario, work);
                            }});
}

}  // namespace moetwin
