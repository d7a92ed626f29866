#include "backends/sim/cluster/nccl_profile.h"

#include <algorithm>

#include "backends/sim/cluster/figures.h"

namespace moetwin {
namespace {

struct Named {
  const char* name;
  ByProtocol NcclProfile::*figures;
};
constexpr Named kNamedAlgorithms[] = {{"ring", &NcclProfile::ring},
                                      {"tree", &NcclProfile::tree},
                                      {"pairs", &NcclProfile::pairs},
                                      {"nvls", &NcclProfile::nvls},
                                      {"deduplicated", &NcclProfile::deduplicated}};

bool with_peers(const Named& algorithm) { return algorithm.figures == &NcclProfile::pairs; }
/// Kernels of their own, which a machine may lack.
bool simple_only(const Named& algorithm) {
  return algorithm.figures == &NcclProfile::nvls || algorithm.figures == &NcclProfile::deduplicated;
}

template <class Visit>
void visit(ProtocolFigures& step, const std::string& at, bool pairs, Visit&& each) {
  each(at + ".start_seconds", step.start.value, false);
  each(at + ".nvlink_step_seconds", step.nvlink_step.value, false);
  each(at + ".nic_step_seconds", step.nic_step.value, false);
  each(at + ".nvlink_share", step.nvlink_share, true);
  each(at + ".nic_share", step.nic_share, true);
  if (!pairs) return;
  each(at + ".nvlink_peer_seconds", step.nvlink_peer.value, false);
  each(at + ".nic_peer_seconds", step.nic_peer.value, false);
}

}  // namespace

const char* protocol_name(Protocol protocol) {
  constexpr const char* kNames[] = {"ll", "ll128", "simple"};
  return kNames[static_cast<int>(protocol)];
}

NcclProfile one_protocol(Seconds start, Seconds nvlink_step, Seconds nic_step) {
  const ProtocolFigures only{start, nvlink_step, nic_step, 1, 1, Seconds(0), Seconds(0)};
  NcclProfile profile;
  const auto simple = static_cast<size_t>(Protocol::simple);
  profile.ring[simple] = profile.tree[simple] = profile.pairs[simple] = only;
  return profile;
}

NcclProfile read_nccl(Figures& in) {
  NcclProfile profile;
  for (const Named& algorithm : kNamedAlgorithms) {
    const std::string section = std::string("nccl.") + algorithm.name;
    const bool optional = simple_only(algorithm);
    bool any = false;
    for (int p = 0; p < kProtocols; ++p) {
      const std::string at = section + "." + protocol_name(static_cast<Protocol>(p));
      if (!in.has(at) || (optional && static_cast<Protocol>(p) != Protocol::simple)) continue;
      any = true;
      ProtocolFigures& step = (profile.*algorithm.figures)[static_cast<size_t>(p)].emplace();
      visit(step, at, with_peers(algorithm),
            [&](const std::string& key, double& value, bool share) {
              value = in.figure(key, share ? Figures::Rule::fraction : Figures::Rule::not_negative);
            });
    }
    if (!any && !optional) in.fault(section, "needs at least one of ll, ll128, simple");
  }
  if (const std::string at = "nccl.deduplicated.relay_bytes_per_second"; in.has(at))
    profile.relay = BytesPerSecond(in.figure(at, Figures::Rule::positive));
  if (const std::string at = "nccl.message"; in.has(at)) {
    MessageLimits& message = profile.message.emplace();
    const auto rate = [&](const char* key) {
      return BytesPerSecond(in.figure(at + key, Figures::Rule::positive));
    };
    message.channel = rate(".channel_bytes_per_second");
    message.channels = in.count(at + ".channels", 1);
    message.channel_bytes = Bytes(in.figure(at + ".channel_bytes", Figures::Rule::positive));
    message.between = rate(".nic_bytes_per_second");
  }
  return profile;
}

BytesPerSecond MessageLimits::inside(Bytes bytes, int64_t members_on_node) const {
  int64_t used = std::max<int64_t>(1, channels / members_on_node);
  while (used < channels && bytes.value > channel_bytes.value * static_cast<double>(used))
    used *= 2;
  return BytesPerSecond(channel.value * static_cast<double>(std::min(used, channels)));
}

std::vector<NcclFigure> nccl_figures(NcclProfile& profile) {
  std::vector<NcclFigure> list;
  for (const Named& algorithm : kNamedAlgorithms)
    for (int p = 0; p < kProtocols; ++p)
      if (auto& step = (profile.*algorithm.figures)[static_cast<size_t>(p)])
        visit(*step,
              std::string("nccl.") + algorithm.name + "." + protocol_name(static_cast<Protocol>(p)),
              with_peers(algorithm), [&](const std::string& key, double& value, bool share) {
                list.push_back({key, &value, share});
              });
  return list;
}

}  // namespace moetwin
