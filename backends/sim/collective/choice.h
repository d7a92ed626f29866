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
/// them.
enum class AllToAll : uint8_t { direct, pxn, hierarchical };

struct NcclChoice {
  std::array<bool, kAlgorithms> algorithms{true, true, true};
  std::array<bool, kProtocols> protocols{true, true, true};
  AllToAll all_to_all = AllToAll::direct;
  bool allows(Algorithm a) const { return algorithms[static_cast<size_t>(a)]; }
  bool allows(Protocol p) const { return protocols[static_cast<size_t>(p)]; }
};

/// `algorithm`: cluster.collective_algorithm ("auto", an algorithm's name, "pxn" or
/// "hierarchical"), `nccl`: the scenario's variables. NCCL_PROTO ("Simple", "^LL128") always
/// counts; NCCL_ALGO ("Ring,Tree") and NCCL_NVLS_ENABLE=0 where `algorithm` names none; algorithms
/// that are not modelled (collnet, PAT) are passed over, and a list that leaves nothing allows all.
/// Throws Error(configuration) for an unknown name.
NcclChoice nccl_choice(const std::string& algorithm,
                       const std::map<std::string, std::string>& nccl);

}  // namespace moetwin
