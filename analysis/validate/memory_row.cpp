#include "analysis/validate/memory_row.h"

#include <map>

namespace moetwin {
namespace {

/// "GiB per GPU (first stage)", "GB per GPU", "MB": bytes of one; 0: not known.
double unit_bytes(const PublishedRow& row) {
  const std::string& unit = row.text("unit");
  const std::string name = unit.substr(0, unit.find(' '));
  constexpr double kMiB = 1024.0 * 1024, kGiB = 1024 * kMiB;
  if (name == "GiB") return kGiB;
  if (name == "MiB") return kMiB;
  // nanotron logs max_memory_allocated / 1024^3 as GB.
  if (name == "GB") return row.mentions("framework", "nanotron") ? kGiB : 1e9;
  // Galvatron's and PyTorch's tools print MiB as MB.
  if (name == "MB") return kMiB;
  return 0;
}

/// torchtitan and InternEvo print what PyTorch has reserved, BigScience's chronicles what
/// nvidia-smi shows; others print or mean what is allocated.
MemoryShare peak_of(const PublishedRow& row) {
  if (row.mentions("framework", "torchtitan")) return MemoryShare::reserved;
  const bool smi = row.mentions("notes", "nvidia-smi") || row.mentions("series", "BIGSCI");
  return smi ? MemoryShare::device : MemoryShare::peak;
}

bool share_of(const PublishedRow& row, MemoryShare& share) {
  const std::string& component = row.text("component");
  const std::map<std::string, MemoryShare> known = {
      {"params+grads+optimizer", MemoryShare::states},
      {"model states", MemoryShare::states},
      {"Adam optimizer states", MemoryShare::optimizer},
      {"activations", MemoryShare::kept},
      {"activation peak", MemoryShare::working},
      {"activation memory relative to tensor-parallel baseline", MemoryShare::relative},
      {"saved activations of op", MemoryShare::saved_by_op},
      {"peak GPU memory", peak_of(row)}};
  const auto found = known.find(component);
  if (found != known.end()) share = found->second;
  return found != known.end();
}

/// Layouts of Korthikanti et al. 2022, table 3, of which their figures of shares are.
PublishedRow korthikanti(const PublishedRow& row) {
  struct Layout {
    const char *model, *gpus, *stages, *micro_batch, *batch;
  };
  constexpr Layout kLayouts[] = {{"22B", "8", "1", "4", "4"},
                                 {"175B", "64", "8", "1", "64"},
                                 {"530B", "280", "35", "1", "280"},
                                 {"1T", "512", "64", "1", "512"}};
  for (const Layout& l : kLayouts)
    if (row.mentions("model", l.model))
      return row.with({{"n_gpus", l.gpus},
                       {"TP", "8"},
                       {"PP", l.stages},
                       {"DP", "1"},
                       {"micro_batch", l.micro_batch},
                       {"global_batch", l.batch},
                       {"precision", "fp16 mixed"}});
  return row;
}

/// Bytes that the forward of an op of a Megatron layer leaves: its output; of a norm the statistics
/// of each row, of a dropout its mask of a byte an element. 0: not known.
double saved_by(const PublishedRow& row) {
  const std::string& model = row.text("model");
  const auto is = [&](const char* op) { return model.find(op) != std::string::npos; };
  const auto tp = static_cast<double>(row.whole("TP", 1));
  const auto sequence = static_cast<double>(row.whole("seq", 0));
  const double tokens = sequence * static_cast<double>(row.whole("micro_batch", 0));
  const double rows = tokens * static_cast<double>(row.whole("hidden", 0));
  const double scores = tokens * sequence * static_cast<double>(row.whole("heads", 0)) / tp;
  constexpr double kElement = 2, kMask = 1, kStatistics = 2 * 4;
  if (is("layernorm")) return kElement * rows + kStatistics * tokens;
  if (is("attention-qkv")) return kElement * 3 * rows / tp;
  if (is("attention-score") || is("attention-softmax")) return kElement * scores;
  if (is("enc-attention-dropout")) return (kElement + kMask) * scores;
  if (is("attention-context")) return kElement * rows / tp;
  if (is("attention-dense") || is("MLP-GEMM-2")) return kElement * rows;
  if (is("MLP-GEMM-1") || is("MLP-gelu")) return kElement * 4 * rows / tp;
  if (is("post-attention-dropout") || is("post-MLP-dropout")) return (kElement + kMask) * rows;
  return 0;
}

}  // namespace

MemoryRow read_memory_row(const PublishedRow& row) {
  MemoryRow out{"", MemoryShare::peak, 0, "bytes", 0, row};
  if (!share_of(row, out.share)) {
    out.reason = "component: " + row.text("component");
    return out;
  }
  const auto value = row.number("value");
  double unit = unit_bytes(row);
  switch (out.share) {
    case MemoryShare::relative:
      out.training = korthikanti(row);
      out.unit = "x";
      unit = 0.01;
      break;
    case MemoryShare::saved_by_op:
      out.saved = saved_by(row);
      if (out.saved == 0) out.reason = "no op of the model: " + row.text("model");
      break;
    case MemoryShare::optimizer:
      // States alone: no batch is stated and none matters.
      out.training = row.with({{"micro_batch", "1"},
                               {"seq", "1024"},
                               {"sharding", row.mentions("unit", "without") ? "" : "ZeRO-1"}});
      break;
    default:
      break;
  }
  if (!value || unit == 0) out.reason = "unit: " + row.text("unit");
  if (out.reason.empty()) out.measured = *value * unit;
  return out;
}

}  // namespace moetwin
