// The count of model_size.h against the parameters that the layers themselves declare.
#include <catch2/catch.hpp>

#include "core/moe/experts.h"
#include "core/nn/attention.h"
#include "core/nn/embedding.h"
#include "core/nn/ffn.h"
#include "core/nn/norm.h"
#include "core/scenario/model_size.h"

using namespace moetwin;

namespace {

// A group of which only size and place are asked.
class Silent : public Communicator {
 public:
  using Communicator::Communicator;

 protected:
  void start(const CollectiveCall&, Stream) override {}
};

// Elements declared by all but the routers, layer by layer as the transformer builds them.
int64_t declared(const ModelConfig& m, const Grid& grid, int64_t rank) {
  const Group group = grid.group(GroupKind::tp, rank);
  Silent silent(group, group.index_of(rank), "tp");
  const TensorParallel tp(group.size() > 1 ? &silent : nullptr, false);
  const MoeLayerConfig& moe = m.moe_layer_config;
  ParameterSet set;
  Embedding embedding(set, m, 0, tp);
  for (int64_t i = 0; i < m.num_layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    Norm(set, m, name + ".attention_norm", i);
    Attention(set, m, name + ".attention", 0.02, i, tp);
    Norm(set, m, name + ".ffn_norm", i);
    const FfnConfig dense{name + ".ffn", m.hidden_size, m.ffn_width(), m.activation, m.ffn_bias};
    if (!m.is_moe_layer(i) || moe.dense_ffn_beside_moe) Ffn(set, dense, tp);
    if (!m.is_moe_layer(i)) continue;
    GroupedExperts(set, m, grid, grid.coordinates(rank), name + ".experts", 0.02, i);
    if (moe.shared_expert_hidden_size)
      Ffn(set,
          {name + ".shared", m.hidden_size, moe.shared_expert_hidden_size, moe.expert_activation,
           moe.expert_bias},
          tp);
  }
  Head(set, m, m.tie_embeddings ? &embedding.table() : nullptr, 99, tp);
  int64_t elements = 0;
  for (const Parameter& parameter : set.all()) elements += parameter.elements();
  return elements;
}

}  // namespace

TEST_CASE("parameter counts are those that the layers declare") {
  for (int variant = 0; variant < 72; ++variant) {
    Scenario s;
    ModelConfig& m = s.model_config;
    MoeLayerConfig& moe = m.moe_layer_config;
    m.hidden_size = 12, m.num_layers = 5, m.num_attention_heads = 6, m.vocab_size = 17;
    m.sequence_length = 9;
    moe.num_experts = 2, moe.moe_every_k_layers = 2, moe.expert_hidden_size = 20;
    m.activation = variant & 1 ? "swiglu" : "gelu";
    moe.expert_activation = variant & 2 ? "gelu_tanh" : "swiglu";
    moe.expert_bias = m.ffn_bias = (variant & 4) != 0;
    m.attention_bias = moe.dense_ffn_beside_moe = (variant & 8) != 0;
    m.normalization = variant & 16 ? "rmsnorm" : "layernorm";
    m.tie_embeddings = m.qk_norm = (variant & 32) != 0;
    if (variant >= 64) {
      m.attention = "multi_head_latent", m.position_embedding = "rotary";
      m.latent_attention = {variant & 1 ? 7 : 0, 5, 3, 4, 9};
      m.attention_bias = m.qk_norm = false;
      moe.first_dense_layers = variant & 2 ? 3 : 0;
    }
    if (variant % 3 == 0) moe.shared_expert_hidden_size = 6;
    if (variant % 5 == 0 && variant < 64)
      m.num_key_value_heads = 2, m.head_dim = 5, m.position_embedding = "rotary";
    for (int64_t tp : {1, 2})
      for (int64_t ep : {1, 2, 4}) {
        DistributedConfig d;
        d.expert_parallel_size = ep;
        d.tensor_parallel_size = tp;
        d.world_size = ep * tp;
        const Grid grid(d, moe.num_experts, m.expert_width());
        for (int64_t rank = 0; rank < grid.world(); ++rank) {
          const Coordinates at = grid.coordinates(rank);
          const ParameterCount n = rank_parameters(s, parallel_sizes(d, moe.num_experts), 0,
                                                   grid.hidden_row(at.ep) * grid.etp() + at.etp);
          INFO("variant " << variant << " EP " << ep << " TP " << tp << " rank " << rank);
          CHECK(n.total() - n.router == declared(m, grid, rank));
        }
      }
  }
}
