#include "backends/sim/collective/work.h"

#include <algorithm>

namespace moetwin {
namespace {

BytesPerSecond reached(const LinkProfile& link, double share) {
  return BytesPerSecond(link.effective().value * share);
}

}  // namespace

Seconds path_of(const Work& work, const ProtocolFigures& figures, const Machine& machine) {
  const ClusterProfile& p = machine.profile();
  return (figures.nvlink_step + work.piece / reached(p.nvlink, figures.nvlink_share)) *
             work.nvlink_steps +
         (figures.nic_step + work.piece / reached(p.nic, figures.nic_share)) * work.nic_steps +
         figures.nvlink_peer * work.nvlink_peers + figures.nic_peer * work.nic_peers + work.own;
}

Seconds bytes_of(const Work& work, const ProtocolFigures& figures, const Machine& machine) {
  const ClusterProfile& p = machine.profile();
  Seconds longest = std::max({work.nvlink / reached(p.nvlink, figures.nvlink_share),
                              work.nic / reached(p.nic, figures.nic_share), work.message});
  if (work.fabric.value > 0)
    longest = std::max(longest, work.fabric / BytesPerSecond(machine.fabric_bandwidth().value *
                                                             figures.nic_share));
  return longest + work.nvlink_before / reached(p.nvlink, figures.nvlink_share);
}

Seconds time_of(const Work& work, const ProtocolFigures& figures, const Machine& machine) {
  const Seconds path = path_of(work, figures, machine), bytes = bytes_of(work, figures, machine);
  if (!work.ring) return figures.start + path + bytes;
  return figures.start +
         std::max(path, bytes + (work.nic_steps > 0 ? figures.nic_step : figures.nvlink_step));
}

}  // namespace moetwin
