#pragma once
// Which of NCCL's algorithms and protocols may be taken, as a scenario or NCCL's own variables say.

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "backends/sim/cluster/nccl_profile.h"

namespace moetwin {

struct Scenario;

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

/// Whose rows they are: each token's `copies` go to independent experts, all of them among
/// `kept_groups` of `groups` equal parts of the experts (group-limited top-k).
struct TokenCopies {
  int64_t copies = 1, groups = 1, kept_groups = 1;
  /// The chance that a token has a copy among receivers that together get `share` of all copies.
  double reach(double share) const;
};

TokenCopies copies_of_tokens(const Scenario& scenario);

struct AllToAllChoice {
  AllToAll way = AllToAll::direct;
  TokenCopies of{};
  /// Of rows to receivers that together get `share` of a member's, those that are different: the
  /// tokens that reach them over their expected number of rows.
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
/// "hierarchical" or "deduplicated", of such copies), `nccl`: the scenario's variables.
/// NCCL_PROTO ("Simple", "^LL128") always counts; NCCL_ALGO ("Ring,Tree") and NCCL_NVLS_ENABLE=0
/// where `algorithm` names none; algorithms that are not modelled (collnet, PAT) are passed over,
/// and a list that leaves nothing allows all. Throws Error(configuration) for an unknown name.
NcclChoice nccl_choice(const std::string& algorithm, const std::map<std::string, std::string>& nccl,
                       const TokenCopies& copies = {});

}  // namespace moetwin
