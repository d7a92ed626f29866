// Rows of memory.csv: bytes on the fullest GPU.
#include <algorithm>

#include "analysis/validate/kind.h"
#include "analysis/validate/step_run.h"
#include "analysis/validate/training_row.h"

namespace moetwin {
namespace {

/// peak: of tensors; reserved: of the caching allocator's blocks; device: of all, with context and
/// communicators.
enum class Share { peak, reserved, device, states, activations };

/// "GiB per GPU (first stage)", "GB per GPU", "MB": bytes of one; 0: not known.
double unit_bytes(const std::string& unit) {
  const std::string name = unit.substr(0, unit.find(' '));
  if (name == "GiB") return 1024.0 * 1024 * 1024;
  if (name == "MiB") return 1024.0 * 1024;
  if (name == "GB") return 1e9;
  // Galvatron's and PyTorch's tools print MiB as MB.
  if (name == "MB") return 1024.0 * 1024;
  return 0;
}

/// torchtitan prints what PyTorch has reserved, BigScience's chronicles what nvidia-smi shows;
/// others print or mean what is allocated.
Share peak_of(const PublishedRow& row) {
  if (row.mentions("framework", "torchtitan")) return Share::reserved;
  const bool smi = row.mentions("notes", "nvidia-smi") || row.mentions("series", "BIGSCI");
  return smi ? Share::device : Share::peak;
}

bool share_of(const PublishedRow& row, Share& share) {
  const std::string component = row.text("component");
  if (component == "peak GPU memory")
    share = peak_of(row);
  else if (component == "params+grads+optimizer" || component == "model states")
    share = Share::states;
  else if (component == "activations")
    share = Share::activations;
  else
    return false;
  return true;
}

Prediction bytes_of(const Report& report, Share share) {
  const auto of = [&](MemoryClass c) {
    return static_cast<double>(report.classes_of_fullest[static_cast<size_t>(c)]);
  };
  const double states =
      of(MemoryClass::parameters) + of(MemoryClass::gradients) + of(MemoryClass::optimizer);
  const double peak = static_cast<double>(
      *std::max_element(report.peak_bytes_per_rank.begin(), report.peak_bytes_per_rank.end()));
  Prediction p;
  p.value = share == Share::peak       ? peak
            : share == Share::reserved ? static_cast<double>(report.reserved_bytes)
            : share == Share::device
                ? static_cast<double>(*std::max_element(report.device_bytes_per_rank.begin(),
                                                        report.device_bytes_per_rank.end()))
            : share == Share::states ? states
                                     : of(MemoryClass::activations);
  p.note = "";
  for (int i = 0; i < kMemoryClasses; ++i) {
    const auto c = static_cast<MemoryClass>(i);
    if (of(c) >= 0.01 * peak)
      p.note += (p.note.empty() ? "" : ", ") + std::string(memory_class_name(c)) + " " +
                std::to_string(static_cast<int>(100 * of(c) / peak + 0.5)) + "%";
  }
  return p;
}

}  // namespace

void plan_memory(const std::vector<PublishedRow>& rows, Plan& plan) {
  for_each_row(rows, plan, [&](const PublishedRow& row, size_t i, RowResult& result) {
    Share share = Share::peak;
    TrainingRow work = read_training_row(row);
    if (work.other_hardware) {
      result.standing = Standing::other_hardware;
      result.reason = work.reason;
      return;
    }
    if (!share_of(row, share)) return refuse(result, "component: " + row.text("component"));
    if (!work.reason.empty()) return refuse(result, work.reason);
    const auto value = row.number("value");
    const double unit = unit_bytes(row.text("unit"));
    if (!value || unit == 0) return refuse(result, "unit: " + row.text("unit"));
    result.measured = *value * unit;
    result.unit = "bytes";
    result.caveat = work.caveat;
    plan.batches.push_back(
        {{i}, [share, scenario = std::move(work.scenario)](const MakeCluster& make) {
           return std::vector<Prediction>{estimate(
               scenario, make, [share](const Report& r) { return bytes_of(r, share); }, false)};
         }});
  });
}

}  // namespace moetwin
