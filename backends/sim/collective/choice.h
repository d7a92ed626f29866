#pragma once
// Which of NCCL's algorithms and protocols may be taken, as a scenario or NCCL's own variables say.

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "backends/sim/cluster/nccl_profile.h"

namespace moetwin {

enum class Algorithm : uint8_t { ring, tree, nvls };
inline constexpr int kAlgorithms = 3;
/// "ring", "tree", "nvls".
const char* algorithm_name(Algorithm algorithm);

/// direct: grouped send and recv of every pair at once. pxn: bytes to a GPU of another node go by
/// NVLink to the GPU of the own node that has the receiver's place (its rail), and from there in
/// one message with the others'. hierarchical: the same, first all inside nodes, then all between
/// them. deduplicated (DeepEP): a row that is wanted by several GPUs of another node goes there
/// once, to the GPU that has the sender's place, which passes it on by NVLink, once to each GPU; on
/// the way back rows of one token are summed where they meet.
enum class AllToAll : uint8_t { direct, pxn, hierarchical, deduplicated };

struct AllToAllChoice {
  AllToAll way = AllToAll::direct;
  int64_t copies = 1;  ///< of a row among those a member sends: experts of a token
  /// Of rows to receivers that together get `share` of a member's, those that are different: the
  /// chance that one of `copies` independent receivers is among them, over their expected number.
  double different(double share) const;
};

struct NcclChoice {
  std::array<bool, kAlgorithms> algorithms{true, true, true};
  std::array<bool, kProtocols> protocols{true, true, true};
  AllToAllChoice all_to_all;
  bool allows(Algorithm a) const { return algorithms[static_cast<size_t>(a)]; }
  bool allows(Protocol p) const { return protocols[static_cast<size_t>(p)]; }
};

/// `algorithm`: cluster.collective_algorithm ("auto", an algorithm's name, "pxn",
/// "hierarchical" or "deduplicated", of rows with `copies`), `nccl`: the scenario's variables.
/// NCCL_PROTO ("Simple", "^LL128") always counts; NCCL_ALGO ("Ring,Tree") and NCCL_NVLS_ENABLE=0
/// where `algorithm` names none; algorithms that are not modelled (collnet, PAT) are passed over,
/// and a list that leaves nothing allows all. Throws Error(configuration) for an unknown name.
NcclChoice nccl_choice(const std::string& algorithm, const std::map<std::string, std::string>& nccl,
                       int64_t copies = 1);

}  // namespace moetwin
