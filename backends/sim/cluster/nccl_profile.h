#pragma once
// How NCCL moves bytes on a machine (a profile's section `nccl`): fixed times, latencies of steps
// and the share of the links' bandwidth that each algorithm reaches under each protocol. The terms
// are those of NCCL's own cost model (its src/graph/tuning.cc); the figures are a machine's.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"

namespace moetwin {

class Figures;

/// ll: 4 of 8 bytes are flags, so no fence is waited for; ll128: 8 of 128 are; simple: all data,
/// and a fence at each step.
enum class Protocol : uint8_t { ll, ll128, simple };
inline constexpr int kProtocols = 3;
/// "ll", "ll128", "simple".
const char* protocol_name(Protocol protocol);

/// Of an algorithm under one protocol.
struct ProtocolFigures {
  Seconds start;                  ///< of the whole collective
  Seconds nvlink_step, nic_step;  ///< latency of a step inside a node, between nodes
  /// Share of the links' effective bandwidth that is reached.
  double nvlink_share = 1, nic_share = 1;
  /// Of sends and receives only: added for every peer of a member beyond the first.
  Seconds nvlink_peer, nic_peer;
};
/// By Protocol; absent: the algorithm has none under it.
using ByProtocol = std::array<std::optional<ProtocolFigures>, kProtocols>;

/// What one message, a send to one receiver, can reach.
struct MessageLimits {
  /// Inside a node a message is cut over channels, each of which copies so many bytes a second.
  BytesPerSecond channel;
  int64_t channels = 1;    ///< of a GPU; with n members on the node a message has 1/n of them,
  Bytes channel_bytes;     ///< and twice as many until none has more than this
  BytesPerSecond between;  ///< between nodes
  /// At this rate, whatever else is under way.
  BytesPerSecond inside(Bytes bytes, int64_t members_on_node) const;
};

struct NcclProfile {
  ByProtocol ring, tree;
  ByProtocol pairs;  ///< sends and receives, single and grouped
  /// Reduction and multicast in the switch of a node, a tree between nodes (simple only); absent:
  /// the machine has none.
  ByProtocol nvls;
  std::optional<MessageLimits> message;  ///< absent: as fast as the links
  /// Kernels of a deduplicated exchange (DeepEP; simple only); absent: as pairs.
  ByProtocol deduplicated;
  /// What they pass on between nodes, through buffers of which the own node's has its turn too, by
  /// GPU; absent: as fast as the links.
  std::optional<BytesPerSecond> relay;
};

/// One protocol that starts in `start` and reaches all of the links.
NcclProfile one_protocol(Seconds start, Seconds nvlink_step, Seconds nic_step);
/// The section `nccl` of a profile that has it; faults are noted.
NcclProfile read_nccl(Figures& in);

/// A figure of the section.
struct NcclFigure {
  std::string key;  ///< "nccl.ring.ll.start_seconds"
  double* value;    ///< in the profile it was asked of
  bool is_share;    ///< at most 1
};
std::vector<NcclFigure> nccl_figures(NcclProfile& profile);

}  // namespace moetwin
