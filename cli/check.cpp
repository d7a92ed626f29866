// `moetwin check FILE`: what a scenario means, before anything runs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "cli/layout_text.h"
#include "cli/machines.h"
#include "cli/scenario_arguments.h"
#include "cli/text_table.h"
#include "cli/verbs.h"
#include "core/base/error.h"
#include "core/base/units.h"
#include "core/scenario/model_size.h"
#include "core/scenario/sharding.h"
#include "core/topology/grid.h"

namespace moetwin {
namespace {

std::string text(int64_t count) { return format_count(static_cast<double>(count)); }
// "51.77 GFLOP"
std::string flop_text(double flop) {
  std::string text = format_count(flop);
  const size_t digits = text.find_first_not_of("0123456789.");
  return text.insert(std::min(digits, text.size()), " ") + "FLOP";
}
std::string bytes(int64_t count) { return format_bytes(static_cast<double>(count)); }

void print_model(std::ostream& out, const Scenario& s) {
  const ModelConfig& m = s.model_config;
  const MoeLayerConfig& moe = m.moe_layer_config;
  out << fmt::format(
      "Model        {}: {} layers, hidden {}, {} heads of {}, vocabulary {}, {} tokens a "
      "sequence\n",
      m.model_type, m.num_layers, m.hidden_size, m.num_attention_heads, m.dim_per_head(),
      m.vocab_size, m.sequence_length);
  if (m.num_moe_layers() > 0) {
    const std::string capacity =
        moe.capacity_factor
            ? fmt::format("capacity factor {}, drop by {}", *moe.capacity_factor, moe.drop_policy)
            : "nothing dropped";
    out << fmt::format(
        "             {} MoE layers, every {}{}: {} experts of width {}, top-{}, {}\n",
        m.num_moe_layers(), moe.moe_every_k_layers,
        moe.first_dense_layers > 0 ? fmt::format(" after the first {}", moe.first_dense_layers)
                                   : "",
        moe.num_experts, m.expert_width(), moe.top_k, capacity);
  } else {
    out << "             dense: no MoE layers\n";
  }
}

void print_parameters(std::ostream& out, const Scenario& s) {
  const ParameterCount all = model_parameters(s), active = active_parameters(s);
  TextTable table({true, false, false});
  table.row({"part", "total", "active per token"});
  const auto row = [&](const char* name, int64_t total, int64_t used) {
    if (total) table.row({name, text(total), text(used)});
  };
  row("embedding", all.embedding, active.embedding);
  row("LM head", all.head, active.head);
  row("attention", all.attention, active.attention);
  row("norms", all.norm, active.norm);
  row("dense FFN", all.dense_ffn, active.dense_ffn);
  row("routers", all.router, active.router);
  row("shared experts", all.shared_expert, active.shared_expert);
  row("experts", all.expert, active.expert);
  row("sum", all.total(), active.total());
  out << "\nParameters\n";
  table.print(out);
}

void print_memory(std::ostream& out, const Scenario& s, const ParallelSizes& sizes) {
  const BytesPerParameter each = bytes_per_parameter(s.training_config);
  out << fmt::format(
      "\nTraining state per rank ({}, {}: {} + {} + {} bytes a parameter; activations and buffers "
      "come on top)\n",
      s.training_config.dtype, s.training_config.optimizer, each.weight, each.gradient,
      each.optimizer);
  // Ranks differ by stage and by hidden row only; the fullest one is what must fit.
  int64_t fullest_stage = 0, fullest_row = 0;
  int64_t most = -1;
  for (int64_t stage = 0; stage < sizes.pp; ++stage)
    for (int64_t row = 0; row < sizes.hidden_sharding; ++row) {
      const ParameterCount n = rank_parameters(s, sizes, stage, row);
      if (n.total() > most) most = n.total(), fullest_stage = stage, fullest_row = row;
    }
  const ParameterCount n = rank_parameters(s, sizes, fullest_stage, fullest_row);
  TextTable table({true, false, false, false, false, false});
  table.row({"part", "parameters", "weights", "gradients", "optimizer", "sum"});
  const auto row = [&](const char* name, int64_t parameters, const StateBytes& b) {
    table.row({name, text(parameters), bytes(b.weights), bytes(b.gradients), bytes(b.optimizer),
               bytes(b.total())});
  };
  const ClusterProfile machine = machine_profile(s);
  StateBytes sum = dense_state_bytes(s, sizes, n, machine.gpus_per_node);
  row("dense", n.dense(), sum);
  if (n.expert) {
    const StateBytes experts = expert_state_bytes(s, sizes, n, machine.gpus_per_node);
    row("experts", n.expert, experts);
    sum += experts;
  }
  row("sum", n.total(), sum);
  table.print(out);
  const Sharding& sharding = sharding_of(s.distributed_config);
  if (sharding.shard != Shard::nothing) {
    const int64_t dense = dense_shards(s, sizes, machine.gpus_per_node);
    const int64_t expert = expert_shards(s, sizes, machine.gpus_per_node);
    out << fmt::format(
        "  {}: {} of dense parameters over {} ranks, of experts over {}{}\n", sharding.name,
        sharding.shard == Shard::optimizer ? "optimizer state"
                                           : "weights, gradients, optimizer state",
        dense, expert, expert == 1 ? " (one copy of each expert: not sharded further)" : "");
    if (s.distributed_config.fsdp.cpu_offload)
      out << "  cpu_offload: sharded weights and optimizer state are in host memory\n";
  }
  const std::string& dtype = s.training_config.dtype;
  const char* wide = dtype == "fp64" ? "fp64" : "fp32";
  out << fmt::format(
      "  types: activations and weights {}; routers (weights, logits, scores, balance bias), "
      "gradients, optimizer state{} {}\n",
      dtype, dtype == wide ? "" : " and master weights", wide);
  const double left = machine.gpu.memory.value - static_cast<double>(sum.total());
  out << fmt::format("  {} has {}: {}\n", machine.gpu.name, format_bytes(machine.gpu.memory.value),
                     left >= 0 ? format_bytes(left) + " are left for activations and buffers"
                               : "too little by " + format_bytes(-left));
  if (sizes.pp > 1)
    out << fmt::format("  the fullest rank: stage {} of {}\n", fullest_stage, sizes.pp);
}

void print_flop(std::ostream& out, const Scenario& s) {
  const ForwardFlop f = forward_flop_per_token(s);
  TextTable table({true, false, false});
  table.row({"part", "forward", "share"});
  const auto row = [&](const char* name, double flop) {
    if (flop > 0)
      table.row({name, format_count(flop), fmt::format("{:.1f} %", 100 * flop / f.total())});
  };
  row("projections", f.projections);
  row("attention scores", f.scores);
  row("dense FFN", f.dense_ffn);
  row("routers", f.router);
  row("shared experts", f.shared_expert);
  row("experts", f.experts);
  row("LM head", f.head);
  row("sum", f.total());
  out << "\nModel FLOP per token (matrix products; a multiply-add is 2)\n";
  table.print(out);
  out << fmt::format("  with the backward, twice the forward: {} a token, {} a step of {} tokens\n",
                     flop_text(training_flop_per_token(s)), flop_text(training_flop_per_step(s)),
                     s.training_config.global_batch_size * s.model_config.sequence_length);
}

void print_training(std::ostream& out, const Scenario& s, const Grid& grid) {
  const TrainingConfig& t = s.training_config;
  out << fmt::format(
      "\nStep         {} sequences = {} dense copies x micro-batch {} x accumulation {}; {} "
      "steps\n",
      t.global_batch_size, grid.ddp(), t.micro_batch_size,
      t.global_batch_size / (grid.ddp() * t.micro_batch_size), t.steps);
  if (s.model_config.num_moe_layers() == 0) return;
  if (s.routing.source == "learned" && t.numerics == "none")
    out << fmt::format("Routing      {} in place of the learned router, as numerics are none\n",
                       s.routing.without_numerics);
  else
    out << fmt::format("Routing      {}\n", s.routing.source);
}

// Every loss term with its coefficient, so that none is on or off unnoticed.
void print_loss(std::ostream& out, const Scenario& s) {
  const ModelConfig& m = s.model_config;
  const MoeLayerConfig& moe = m.moe_layer_config;
  const bool learns = m.num_moe_layers() > 0 && s.routing.source == "learned";
  std::string off;
  out << "Loss         cross-entropy\n";
  const auto term = [&](double factor, const char* key, const std::string& meaning) {
    if (learns && factor != 0)
      out << fmt::format("             + {} x {} ({})\n", factor, meaning, key);
    else
      off += fmt::format("{}{}", off.empty() ? "" : ", ", key);
  };
  term(moe.aux_loss_factor, "aux_loss_factor",
       fmt::format("load balance over {}, mean of {} layers, 1.0 when balanced", moe.aux_loss_scope,
                   m.num_moe_layers()));
  term(moe.z_loss_factor, "z_loss_factor", "router z-loss");
  term(moe.importance_loss_factor, "importance_loss_factor", "importance CV^2");
  term(moe.load_variance_factor, "load_variance_factor", "load variance (its gradient is zero)");
  if (learns && moe.bias_update_rate != 0)
    out << fmt::format("             selection bias, step {} (bias_update_rate)\n",
                       moe.bias_update_rate);
  else
    off += ", bias_update_rate";
  out << "             off: " << off << "\n";
}

int run_check(const ScenarioArguments& arguments, const Output& output) {
  std::vector<std::string> warnings;
  const Scenario s = read_scenario(arguments, &warnings);
  const ModelConfig& m = s.model_config;
  const Grid grid(s.distributed_config, m.moe_layer_config.num_experts, m.expert_width());
  const ParallelSizes sizes = parallel_sizes(s.distributed_config, m.moe_layer_config.num_experts);
  std::ostream& out = output.out;
  out << fmt::format("{}: valid\n", arguments.file);
  if (!s.description.empty()) out << s.description << "\n";
  out << "\n";
  print_model(out, s);
  print_grids(out, grid, m);
  print_training(out, s, grid);
  print_loss(out, s);
  print_parameters(out, s);
  print_memory(out, s, sizes);
  print_flop(out, s);
  out << "\nGroups\n";
  print_groups(out, grid, 4);
  if (!warnings.empty()) out << "\nWarnings\n";
  for (const std::string& warning : warnings) out << "  " << warning << "\n";
  return 0;
}

}  // namespace

void add_check(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("check", "Say what a scenario file means, or what is wrong with it");
  verb->footer(
      "Examples:\n"
      "  moetwin check scenarios/quickstart.json\n"
      "  moetwin check scenarios/seed-high-dp.json --set distributed_config.zero_stage=1");
  auto arguments = std::make_shared<ScenarioArguments>();
  add_scenario_arguments(*verb, *arguments);
  verb->callback([arguments, &action] {
    action = [arguments](const Output& output) { return run_check(*arguments, output); };
  });
}

}  // namespace moetwin
