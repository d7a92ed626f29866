#include "core/train/huggingface/weight_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/moe/balance.h"

namespace moetwin {

namespace {

class Builder {
 public:
  Builder(const ModelConfig& model, const std::string& type, bool interleaved)
      : model_(model), moe_(model.moe_layer_config), type_(type), interleaved_(interleaved) {}

  WeightMap build() {
    table("model.embed_tokens.weight", "embedding.table");
    for (int64_t i = 0; i < model_.num_layers; ++i) layer(i);
    vector("model.norm.weight", "head.norm.gamma", model_.hidden_size);
    if (!model_.tie_embeddings) table("lm_head.weight", "head.table");
    std::stable_sort(map_.pieces.begin(), map_.pieces.end(),
                     [](const auto& a, const auto& b) { return a.ours < b.ours; });
    return std::move(map_);
  }

 private:
  void table(const std::string& theirs, const std::string& ours) {
    const int64_t rows = model_.vocab_size, columns = model_.hidden_size;
    map_.theirs[theirs] = {rows, columns};
    map_.ours[ours] = {1, rows, columns};
    map_.pieces.push_back({theirs, ours, 0, rows, columns, 0, 0, columns, false});
  }

  void vector(const std::string& theirs, const std::string& ours, int64_t n) {
    map_.theirs[theirs] = {n};
    map_.ours[ours] = {1, 1, n};
    map_.pieces.push_back({theirs, ours, 0, 1, n, 0, 0, n, false});
  }

  /// Several of theirs, each [out, in], side by side as one of ours [in, sum of out].
  struct Side {
    std::string theirs;
    int64_t out;
    std::vector<int64_t> order{};
  };
  void linear(const std::string& ours, int64_t in, const std::vector<Side>& sides,
              std::array<int64_t, 3> extents = {0, 0, 0}) {
    int64_t width = 0, column = 0;
    for (const Side& side : sides) width += side.out;
    map_.ours[ours] = extents[0] ? extents : std::array<int64_t, 3>{1, in, width};
    for (const Side& side : sides) {
      map_.theirs[side.theirs] = {side.out, in};
      map_.pieces.push_back(
          {side.theirs, ours, 0, side.out, in, 0, column, width, true, side.order});
      column += side.out;
    }
  }

  void bias(const std::string& ours, const std::vector<Side>& sides) {
    int64_t width = 0, column = 0;
    for (const Side& side : sides) width += side.out;
    map_.ours[ours] = {1, 1, width};
    for (const Side& side : sides) {
      map_.theirs[side.theirs] = {side.out};
      map_.pieces.push_back({side.theirs, ours, 0, 1, side.out, 0, column, width, false});
      column += side.out;
    }
  }

  void layer(int64_t i) {
    const std::string theirs = fmt::format("model.layers.{}.", i),
                      ours = fmt::format("layers.{}.", i);
    vector(theirs + "input_layernorm.weight", ours + "attention_norm.gamma", model_.hidden_size);
    if (model_.latent())
      latent_attention(theirs + "self_attn.", ours + "attention.");
    else
      attention(theirs + "self_attn.", ours + "attention.");
    vector(theirs + "post_attention_layernorm.weight", ours + "ffn_norm.gamma", model_.hidden_size);
    if (!model_.is_moe_layer(i))
      ffn(theirs + "mlp.", ours + "ffn.", model_.ffn_width());
    else
      moe(i, theirs + (type_ == "mixtral" ? "block_sparse_moe." : "mlp."), ours + "moe.");
  }

  void attention(const std::string& theirs, const std::string& ours) {
    const int64_t queries = model_.num_attention_heads * model_.dim_per_head(),
                  keys = model_.kv_heads() * model_.dim_per_head();
    const auto sides = [&](const char* what) -> std::vector<Side> {
      return {{theirs + "q_proj." + what, queries},
              {theirs + "k_proj." + what, keys},
              {theirs + "v_proj." + what, keys}};
    };
    linear(ours + "qkv.weight", model_.hidden_size, sides("weight"));
    linear(ours + "out.weight", queries, {{theirs + "o_proj.weight", model_.hidden_size}});
    if (model_.attention_bias) {
      bias(ours + "qkv.bias", sides("bias"));
      bias(ours + "out.bias", {{theirs + "o_proj.bias", model_.hidden_size}});
    }
    if (!model_.qk_norm) return;
    const bool all = model_.qk_norm_over == "projection";
    vector(theirs + "q_norm.weight", ours + "q_norm.gamma", all ? queries : model_.dim_per_head());
    vector(theirs + "k_norm.weight", ours + "k_norm.gamma", all ? keys : model_.dim_per_head());
  }

  /// Where the outputs of a rotated part that begins at `first` are in theirs.
  void add_rotated(std::vector<int64_t>& order, int64_t first) const {
    const int64_t n = model_.latent_attention.qk_rope_head_dim;
    for (int64_t i = 0; i < n; ++i)
      order.push_back(first + (!interleaved_ ? i : i < n / 2 ? 2 * i : 2 * (i - n / 2) + 1));
  }

  void latent_attention(const std::string& theirs, const std::string& ours) {
    const LatentAttentionConfig& l = model_.latent_attention;
    const int64_t hidden = model_.hidden_size, heads = model_.num_attention_heads;
    const int64_t nope = l.qk_nope_head_dim, dim = model_.dim_per_head();
    std::vector<int64_t> queries, key;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < nope; ++i) queries.push_back(h * dim + i);
      add_rotated(queries, h * dim + nope);
    }
    add_rotated(key, 0);
    if (l.q_lora_rank > 0) {
      linear(ours + "q_down.weight", hidden, {{theirs + "q_a_proj.weight", l.q_lora_rank}});
      vector(theirs + "q_a_layernorm.weight", ours + "q_latent_norm.gamma", l.q_lora_rank);
      linear(ours + "q_up.weight", l.q_lora_rank,
             {{theirs + "q_b_proj.weight", heads * dim, queries}});
    } else {
      linear(ours + "q_up.weight", hidden, {{theirs + "q_proj.weight", heads * dim, queries}});
    }
    // One of theirs makes the latent and the rotated key.
    const std::string down = theirs + "kv_a_proj_with_mqa.weight";
    const int64_t rank = l.kv_lora_rank, rope = l.qk_rope_head_dim;
    linear(ours + "kv_down.weight", hidden, {{down, rank}});
    linear(ours + "k_rope.weight", hidden, {{down, rope, key}});
    map_.theirs[down] = {rank + rope, hidden};
    map_.pieces.back().their_row = rank;
    vector(theirs + "kv_a_layernorm.weight", ours + "kv_latent_norm.gamma", rank);
    linear(ours + "kv_up.weight", rank,
           {{theirs + "kv_b_proj.weight", heads * (nope + l.v_head_dim)}});
    linear(ours + "out.weight", heads * l.v_head_dim, {{theirs + "o_proj.weight", hidden}});
  }

  void ffn(const std::string& theirs, const std::string& ours, int64_t width) {
    linear(ours + "up.weight", model_.hidden_size,
           {{theirs + "gate_proj.weight", width}, {theirs + "up_proj.weight", width}});
    linear(ours + "down.weight", width, {{theirs + "down_proj.weight", model_.hidden_size}});
  }

  void moe(int64_t i, const std::string& theirs, const std::string& ours) {
    const int64_t hidden = model_.hidden_size, width = model_.expert_width();
    linear(ours + "router.weight", hidden, {{theirs + "gate.weight", moe_.num_experts}});
    const bool mixtral = type_ == "mixtral";
    for (int64_t e = 0; e < moe_.num_experts; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", theirs, e),
                        mine = fmt::format("{}experts.{}.", ours, e);
      linear(mine + "w1", hidden,
             {{expert + (mixtral ? "w1.weight" : "gate_proj.weight"), width},
              {expert + (mixtral ? "w3.weight" : "up_proj.weight"), width}},
             {hidden, 2, width});
      linear(mine + "w2", width, {{expert + (mixtral ? "w2.weight" : "down_proj.weight"), hidden}});
    }
    if (moe_.shared_expert_hidden_size > 0)
      ffn(theirs + "shared_experts.", ours + "shared_expert.", moe_.shared_expert_hidden_size);
    if (type_ != "deepseek_v3") return;
    const std::string name = theirs + "gate.e_score_correction_bias";
    map_.theirs[name] = {moe_.num_experts};
    map_.ours[kBalanceBias] = {1, model_.num_moe_layers(), moe_.num_experts};
    map_.pieces.push_back({name, kBalanceBias, 0, 1, moe_.num_experts, model_.moe_layers_before(i),
                           0, moe_.num_experts, false});
  }

  const ModelConfig& model_;
  const MoeLayerConfig& moe_;
  const std::string type_;
  const bool interleaved_;
  WeightMap map_;
};

/// Calls f(place in theirs, place in ours) for every element of a piece.
template <class F>
void for_each_element(const WeightPiece& p, F f) {
  for (int64_t i = 0; i < p.rows; ++i) {
    const int64_t row = p.their_row + (p.order.empty() ? i : p.order[static_cast<size_t>(i)]);
    for (int64_t j = 0; j < p.columns; ++j)
      f(row * p.columns + j, p.transposed ? (p.our_row + j) * p.our_width + p.our_column + i
                                          : (p.our_row + i) * p.our_width + p.our_column + j);
  }
}

}  // namespace

WeightMap huggingface_weights(const ModelConfig& model, const std::string& model_type,
                              bool interleaved) {
  return Builder(model, model_type, interleaved).build();
}

void piece_to_ours(const WeightPiece& piece, const float* theirs, float* ours) {
  for_each_element(piece, [&](int64_t from, int64_t to) { ours[to] = theirs[from]; });
}

void piece_to_theirs(const WeightPiece& piece, const float* ours, float* theirs) {
  for_each_element(piece, [&](int64_t to, int64_t from) { theirs[to] = ours[from]; });
}

}  // namespace moetwin
