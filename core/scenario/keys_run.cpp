// Top level, data, cluster, memory, output, profile.
#include "core/scenario/key_list.h"

namespace moetwin {

void add_run_keys(KeyList& list) {
  list.section("data", "What the model reads.");
  list.key(MOETWIN_KEY(data.format),
           "text: UTF-8 as bytes; tokens: nanoGPT or llm.c .bin; megatron: .bin and .idx; "
           "synthetic: a chain; synthetic_domains: one rule per position.")
      .one_of({"text", "tokens", "megatron", "synthetic", "synthetic_domains"});
  list.key(MOETWIN_KEY(data.files), "Paths or globs, relative to the scenario's directory.")
      .files();
  list.key(MOETWIN_KEY(data.token_dtype), "Type in tokens files without a header.")
      .one_of({"uint16", "uint32"});
  list.key(MOETWIN_KEY(data.validation_fraction),
           "Share kept for validation where there are no validation_files.")
      .at_least(0)
      .below(1);
  list.key(MOETWIN_KEY(data.validation_files), "Paths or globs of validation data.").files();

  list.section("cluster", "The machine to model.");
  list.key(MOETWIN_KEY(cluster.profile), "Name in scenarios/clusters, or path of a profile.");
  list.key(MOETWIN_KEY(cluster.nodes), "Nodes; 0: as many as world_size needs.")
      .between(0, 1 << 20);
  list.key(MOETWIN_KEY(cluster.fidelity), "Model of the network.")
      .one_of({"representative", "fluid", "flow"});
  list.key(
          MOETWIN_KEY(cluster.kernels),
          "Which framework's kernels an op is priced as; megatron-2022: those of 2021, "
          "dropout as fast as its memory, the backward's tensor-parallel all-reduces beside weight "
          "gradients; torch-compile: chains "
          "fused as in megatron-core, tensor-parallel communication beside nothing.")
      .one_of({"moetwin", "megatron-2021", "megatron-2022", "megatron-core", "torch-fsdp",
               "torch-compile"});
  list.key(MOETWIN_KEY(cluster.attention),
           "Which attention is priced and kept in memory; auto: the kernel class's own.")
      .one_of({"auto", "unfused", "fused-softmax", "flash", "flash2", "flash-triton",
               "memory-efficient"});
  list.key(
      MOETWIN_KEY(cluster.blocking_wait),
      "The host waits until each collective that compute waits for has ended, as under PyTorch's "
      "TORCH_NCCL_BLOCKING_WAIT, instead of launching what comes after it meanwhile.");
  list.key(MOETWIN_KEY(cluster.stage_pass_seconds),
           "Host time of each forward or backward of a micro-batch where there are stages, beside "
           "its kernels and sends: the instructions of a pipeline engine (DeepSpeed's: 0.0007).")
      .at_least(0);
  list.key(MOETWIN_KEY(cluster.fp8_products),
           "Price products of linear layers in FP8, with the casts before them (numerics none).");
  list.key(
          MOETWIN_KEY(cluster.collective_algorithm),
          "Algorithm of all-reduce and its parts (ring, tree, nvls), or way of an all-to-all "
          "(pxn: by "
          "the GPU of the node that has the receiver's rail; hierarchical: inside nodes, then "
          "between them; deduplicated, as DeepEP: a token once to each node and GPU); the other is "
          "chosen.")
      .one_of({"auto", "ring", "tree", "nvls", "pxn", "hierarchical", "deduplicated"});
  list.key(MOETWIN_KEY(cluster.price_per_gpu_hour),
           "Price of one GPU for an hour; 0: no cost given.")
      .at_least(0);
  list.key(MOETWIN_KEY(cluster.currency), "Currency of the price.");

  list.section("memory", "What happens when memory runs out.");
  list.key(MOETWIN_KEY(memory.on_exceed),
           "stop: exit 3; report (numerics none only): time goes on, the verdict is out_of_memory.")
      .one_of({"stop", "report"});
  list.key(MOETWIN_KEY(memory.poison), "Fill every new buffer with NaN.");

  list.section("checkpoint", "What is saved of a training, and when.");
  list.key(MOETWIN_KEY(checkpoint.directory),
           "Where checkpoints go; empty: checkpoints in the run directory.");
  list.key(MOETWIN_KEY(checkpoint.every_steps),
           "Steps between checkpoints, with one at the end; 0: only when a signal ends the run.")
      .in("steps")
      .at_least(0);
  list.key(MOETWIN_KEY(checkpoint.keep_last), "Checkpoints kept, the newest; 0: all.").at_least(0);
  list.key(MOETWIN_KEY(checkpoint.type),
           "full: whole tensors in one file; sharded: a file per rank. Either loads in any layout.")
      .one_of({"full", "sharded"});
  list.key(MOETWIN_KEY(checkpoint.async),
           "Write beside training; a save waits for the one before.");
  list.key(MOETWIN_KEY(checkpoint.write_bytes_per_second),
           "Rate at which a modelled rank's state reaches storage; 0: writing takes no time.")
      .in("bytes/s")
      .at_least(0);

  list.section("output", "What a run writes.");
  list.key(MOETWIN_KEY(output.directory), "Run directory; empty: runs/<name>-<backend>-<time>.");
  list.key(MOETWIN_KEY(output.routing_ranks),
           "Ranks with rows of their own in routing.csv; empty: by volume.")
      .at_least(0);
  list.key(MOETWIN_KEY(output.timeline_steps), "Steps in timeline.json; empty: the last.")
      .in("steps")
      .at_least(1);
  list.key(MOETWIN_KEY(output.check_access),
           "Check every op's accesses against stream order and lifetimes.");
  list.key(MOETWIN_KEY(output.log_every), "Steps between progress lines.").in("steps").at_least(1);

  list.section("profile", "Steps that the table of ops and the timeline are made of.");
  list.key(MOETWIN_KEY(profile.wait), "Steps that pass before each cycle, untraced.")
      .in("steps")
      .between(0, 1 << 30);
  list.key(MOETWIN_KEY(profile.warmup), "Steps traced and thrown away after those.")
      .in("steps")
      .between(0, 1 << 30);
  list.key(MOETWIN_KEY(profile.active), "Steps kept after those; 0: no profile.")
      .in("steps")
      .between(0, 1 << 30);
  list.key(MOETWIN_KEY(profile.repeat), "Cycles of the three; 0: to the end of the run.")
      .between(0, 1 << 30);
}

}  // namespace moetwin
