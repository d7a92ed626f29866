// Reading published rows, statistics by hand, and one tiny comparison from table to figures.
#include <json/json.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <sstream>

#include "analysis/validate/collective_row.h"
#include "analysis/validate/kernel_row.h"
#include "analysis/validate/memory_row.h"
#include "analysis/validate/padded_step.h"
#include "analysis/validate/published.h"
#include "analysis/validate/ranking.h"
#include "analysis/validate/row_machine.h"
#include "analysis/validate/score.h"
#include "analysis/validate/step_run.h"
#include "analysis/validate/training_row.h"
#include "backends/sim/cluster.h"
#include "cli/program.h"
#include "cli/shipped.h"
#include "core/base/csv.h"
#include "core/base/error.h"
#include "core/scenario/model_size.h"
#include "tests/support/temporary_directory.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

PublishedRow row_of(const std::vector<std::pair<std::string, std::string>>& cells) {
  auto header = std::make_shared<PublishedRow::Header>();
  std::vector<std::string> fields;
  for (const auto& [name, value] : cells) {
    (*header)[name] = fields.size();
    fields.push_back(value);
  }
  return {header, fields, "t.csv:2"};
}

RowResult scored(const char* series, double measured, double predicted) {
  RowResult r;
  r.id = std::string(series) + "-001";
  r.series = series;
  r.standing = RowStanding::scored;
  r.measured = measured;
  r.predicted = predicted;
  return r;
}

}  // namespace

TEST_CASE("CSV fields may hold commas, quotes and line ends") {
  const auto records = csv_records("a,b\r\n\"x, \"\"y\"\"\nz\",2\n\n,\n");
  REQUIRE(records.size() == 3);
  CHECK(records[1].fields == std::vector<std::string>{"x, \"y\"\nz", "2"});
  CHECK(records[1].line == 2);
  CHECK(records[2].fields == std::vector<std::string>{"", ""});
  CHECK(records[2].line == 5);
}

TEST_CASE("a field that is no number is told with its place") {
  const PublishedRow row = row_of({{"n_gpus", "8-512"}, {"size", ""}, {"nodes", "1.5"}});
  CHECK_THROWS_WITH(row.number("n_gpus"), Contains("t.csv:2: n_gpus \"8-512\" is no number"));
  CHECK_THROWS_WITH(row.whole("nodes", 0), Contains("\"1.5\" is no whole number"));
  CHECK_FALSE(row.number("size"));
  CHECK(row.whole("absent", 7) == 7);
}

TEST_CASE("errors by hand: medians of series, nearest rank, bias") {
  // Series a: +10%, -20%, +30%; b: -50%.
  const std::vector<RowResult> rows = {scored("a", 10, 11), scored("a", 10, 8), scored("a", 10, 13),
                                       scored("b", 2, 1)};
  const KindScore s = score(rows);
  CHECK(s.rows == 4);
  CHECK(s.series[0].median_abs_error == Approx(0.2));
  CHECK(s.series[0].median_error == Approx(0.1));
  CHECK(s.median_abs_error == Approx((0.2 + 0.5) / 2));
  CHECK(s.bias == Approx((0.1 - 0.5) / 2));
  CHECK(s.row_median_abs_error == Approx((0.2 + 0.3) / 2));
  CHECK(s.row_mean_abs_error == Approx((0.1 + 0.2 + 0.3 + 0.5) / 4));
  CHECK(s.p95_abs_error == Approx(0.5));  // rank ceil(3.8) = 4
  CHECK(worst_rows(rows, 2)[0]->series == "b");
  CHECK(percentile_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20},
                      0.95) == 19);
}

TEST_CASE("what is left out counts where it should") {
  RowResult other, refused;
  other.standing = RowStanding::other_hardware;
  refused.reason = "context parallel";
  const KindScore s = score({other, refused, scored("a", 1, 1)});
  CHECK(s.rows == 2);
  CHECK(s.scored == 1);
  CHECK(s.other_hardware == 1);
  CHECK(s.not_expressible.at("context parallel") == 1);
}

TEST_CASE("pairs of layouts that differ by more than a tenth are ranked") {
  std::vector<RowResult> rows = {scored("a", 10, 1), scored("a", 10.5, 2), scored("a", 12, 1.5),
                                 scored("b", 30, 9)};
  for (RowResult& row : rows) row.alternative_of = row.series;
  for (size_t i = 0; i < rows.size(); ++i) rows[i].layout = "TP " + std::to_string(i);
  // 10 against 12: right; 10.5 against 12: wrong; 10 against 10.5 differ too little; b is alone.
  CHECK(rank_pairs(rows).pairs == 2);
  CHECK(rank_pairs(rows).right == 1);
  rows[2].layout = rows[1].layout;  // the same layout twice is no pair
  CHECK(rank_pairs(rows).pairs == 1);
}

TEST_CASE("training rows become scenarios in our words") {
  std::vector<std::pair<std::string, std::string>> cells = {{"gpu", "A100-SXM4"},
                                                            {"gpu_mem_gb", "80"},
                                                            {"model", "GPT 18B"},
                                                            {"layers", "40"},
                                                            {"hidden", "6144"},
                                                            {"heads", "48"},
                                                            {"seq", "2048"},
                                                            {"vocab", "51200"},
                                                            {"framework", "Megatron-LM"},
                                                            {"precision", "fp16"},
                                                            {"n_gpus", "256"},
                                                            {"TP", "8"},
                                                            {"PP", "4"},
                                                            {"VP", "2"},
                                                            {"act_ckpt", "full"},
                                                            {"micro_batch", "4"},
                                                            {"global_batch", "1024"},
                                                            {"tflops_per_gpu", "135"},
                                                            {"tflops_def", "hardware (factor 4)"}};
  const TrainingRow row = read_training_row(row_of(cells));
  REQUIRE(row.reason.empty());
  const Scenario& s = row.scenario;
  CHECK(s.distributed_config.data_parallel_size == 8);  // 256 / (8 x 4)
  CHECK(s.distributed_config.pipeline_schedule == "interleaved_1f1b");
  CHECK(s.cluster.kernels == "megatron-2021");
  CHECK(s.training_config.recompute == "full");
  // 96 B s l h^2 (1 + s / 6h + V / 16lh) over 256 GPUs at 135 TFLOP/s.
  const double flop = 96.0 * 1024 * 2048 * 40 * 6144 * 6144 *
                      (1 + 2048 / (6 * 6144.0) + 51200 / (16 * 40 * 6144.0));
  CHECK(megatron_flop(s, 4) == Approx(flop));
  CHECK(iteration_seconds(row_of(cells), s) == Approx(flop / (256 * 135e12)));
  cells.back().second = "model";
  CHECK(iteration_seconds(row_of(cells), s) < 0.8 * flop / (256 * 135e12));

  // Context parallel ranks share the sequences of a rank's batch.
  cells.emplace_back("CP", "2");
  const TrainingRow with_cp = read_training_row(row_of(cells));
  CHECK(with_cp.reason == "");
  CHECK(with_cp.scenario.distributed_config.context_parallel_size == 2);
  CHECK(with_cp.scenario.training_config.global_batch_size == s.training_config.global_batch_size);
  cells.back().second = "5";
  CHECK_THAT(read_training_row(row_of(cells)).reason, Contains("CP does not divide DP"));
}

TEST_CASE("a long step follows from two shorter ones") {
  Scenario s;
  s.distributed_config.world_size = 8;
  s.distributed_config.pipeline_parallel_size = 4;
  s.training_config.micro_batch_size = 2;
  s.training_config.global_batch_size = 2 * 2 * 100;  // DP 2, 100 micro-batches
  CHECK(steady_micro_batches(s) == 4);
  CHECK(with_micro_batches(s, 12).training_config.global_batch_size == 2 * 2 * 12);
  CHECK(with_micro_batches(s, 200).training_config.global_batch_size == 400);
}

TEST_CASE("a step from few layers and micro-batches is the step of all") {
  Scenario s;
  s.model_config.hidden_size = 4096;
  s.model_config.num_attention_heads = 32;
  s.model_config.num_layers = 12;
  s.model_config.sequence_length = 1024;
  s.model_config.vocab_size = 32000;
  s.distributed_config.world_size = 8;
  s.distributed_config.pipeline_parallel_size = 2;
  s.distributed_config.tensor_parallel_size = 2;
  s.distributed_config.data_parallel_size = 2;
  s.training_config.dtype = "bf16";
  s.training_config.numerics = "none";
  s.training_config.steps = 1;
  s.training_config.warmup_steps_excluded = 0;
  s.training_config.global_batch_size = 2 * 10;
  s.memory.on_exceed = "report";
  const MakeCluster make = [](const Scenario& scenario) {
    SimOptions options;
    options.profile_directories = shipped_directories(scenario, "clusters");
    return make_sim_cluster(scenario, options);
  };
  const auto in_one = [&](const Scenario& scenario) {
    double seconds = 0;
    run_batches(
        {{{0},
          [scenario](const MakeCluster& m) {
            return std::vector<Prediction>{{run_steps(scenario, m).step_seconds_median, ""}};
          }}},
        make, {}, [&](size_t, const Prediction& p) { seconds = p.value; });
    return seconds;
  };
  CHECK(step_seconds(s, make).value == Approx(in_one(s)).epsilon(0.005));
  s.distributed_config.pipeline_parallel_size = s.distributed_config.tensor_parallel_size = 1;
  s.distributed_config.data_parallel_size = 8;
  s.distributed_config.zero_stage = 3;
  s.training_config.global_batch_size = 8 * 4;
  CHECK(step_seconds(s, make).value == Approx(in_one(s)).epsilon(0.005));
}

TEST_CASE("machines are told from the columns") {
  const auto profile = [](std::vector<std::pair<std::string, std::string>> cells) {
    cells.emplace_back("fabric", "InfiniBand");
    return machine_of(row_of(cells), true).profile;
  };
  CHECK(profile({{"gpu", "A100-SXM4"}, {"gpu_mem_gb", "40"}}) == "dgx-a100-40g");
  CHECK(profile({{"gpu", "A100-SXM4"}, {"platform", "ALCF Polaris"}}) == "polaris");
  CHECK(profile({{"gpu", "A100-SXM4"},
                 {"platform", "ALCF Polaris"},
                 {"env_algo", "aws-ofi-nccl + CROSS_NIC=1 GDR=PHB"}}) == "polaris-default");
  CHECK(profile({{"gpu", "A100-SXM4"}, {"platform", "AWS p4de.24xlarge"}}) == "aws-p4de");
  CHECK(profile({{"gpu", "A100-SXM4"}, {"nics_per_node", "4"}, {"nic_gbps", "200"}}) ==
        "a100-4hdr");
  CHECK(profile({{"gpu", "GB200"}}) == "gb200-nvl72");
  CHECK(profile({{"gpu", "A800-SXM"}, {"gpu_mem_gb", "80"}}) == "dgx-a100-80g");
  CHECK(machine_of(row_of({{"gpu", "AMD MI300X"}}), false).other_hardware);
  CHECK(machine_of(row_of({{"gpu", "H20"}}), false).other_hardware);
  CHECK(machine_of(row_of({{"gpu", "not stated"}}), false).other_hardware);
  CHECK_FALSE(machine_of(row_of({{"gpu", "A100"}, {"fabric", "not stated"}}), true).reason.empty());
  CHECK_FALSE(machine_of(row_of({{"gpu", "A100"}}), true).reason.empty());
}

TEST_CASE("times of collectives follow from what the row states") {
  const auto read = [](const char* collective, const char* column, const char* value) {
    return read_collective_row(row_of({{"collective", collective},
                                       {"gpu", "A100-SXM4"},
                                       {"nodes", "1"},
                                       {"n_gpus", "8"},
                                       {"size_bytes", "1000000000"},
                                       {column, value}}));
  };
  CHECK(read("all_reduce", "time_us", "8139").seconds == Approx(8139e-6));
  // Bus bandwidth 175 GB/s: 1 GB x 2 (8-1)/8 / 175 GB/s = 10 ms.
  CHECK(read("all_reduce", "busbw_GBps", "175").seconds == Approx(0.01));
  // 1 GB x 7/8 / 175 GB/s = 5 ms.
  CHECK(read("all_gather", "busbw_GBps", "175").seconds == Approx(0.005));
  CHECK(read("alltoall", "algbw_GBps", "100").seconds == Approx(0.01));
  CHECK(read("sendrecv", "busbw_GBps", "100").seconds == Approx(0.01));
  CHECK_FALSE(read("ib_write_loopback", "busbw_GBps", "20").reason.empty());
  CHECK_FALSE(read("all_reduce", "notes", "").reason.empty());
}

TEST_CASE("dispatch and combine of tokens are exchanges of their copies") {
  const auto read = [](const char* collective, const char* nodes, const char* gpus,
                       const char* column, const char* value) {
    return read_collective_row(row_of({{"collective", collective},
                                       {"gpu", "H800-SXM"},
                                       {"gpu_mem_gb", "80"},
                                       {"nodes", nodes},
                                       {"n_gpus", gpus},
                                       {"fabric", "InfiniBand"},
                                       {"nics_per_node", "8"},
                                       {"nic_gbps", "400"},
                                       {"tokens_per_gpu", "4096"},
                                       {"hidden", "7168"},
                                       {"topk", "8"},
                                       {column, value}}));
  };
  const CollectiveRow fp8 = read("ep_dispatch_fp8", "1", "8", "time_us", "500");
  CHECK(fp8.reason.empty());
  CHECK(fp8.algorithm == "deduplicated");
  CHECK(fp8.copies == 8);
  CHECK(fp8.seconds == Approx(500e-6));
  // A byte an element, and four for 128 of them.
  CHECK(fp8.bytes == 4096.0 * 8 * (7168 + 7168 / 128 * 4));
  const CollectiveRow bf16 = read("ep_combine_bf16", "2", "16", "algbw_GBps", "43");
  CHECK(bf16.bytes == 4096.0 * 8 * 7168 * 2);
  // A token goes to 2 (1 - (1/2)^8) nodes, the own one included.
  CHECK(bf16.seconds == Approx(4096.0 * 7168 * 2 * 2 * (1 - 1.0 / 256) / 43e9));
  // Kernels for decoding are others.
  CHECK_FALSE(read("ep_dispatch_fp8_lowlat", "1", "8", "time_us", "77").reason.empty());
  CHECK_FALSE(read("ep_dispatch_fp8", "1", "8", "topk", "").reason.empty());
}

TEST_CASE("members lie equally on nodes") {
  CollectiveRow row;
  row.ranks = 20;
  row.nodes = 10;
  const Placement place = place_of(row, 8);
  CHECK(place.world == 9 * 8 + 2);
  CHECK(place.group.member(2) == 8);
  CHECK(place.group.member(19) == 73);
  row.ranks = 72, row.nodes = 18, row.hosts_share_nvlink = true;
  CHECK(place_of(row, 72).world == 72);
  row.ranks = 64, row.nodes = 4, row.hosts_share_nvlink = false;
  CHECK_FALSE(place_of(row, 8).reason.empty());
}

TEST_CASE("times of kernels follow from rates") {
  const auto product = read_kernel_row(row_of({{"op", "gemm"},
                                               {"dtype", "bf16"},
                                               {"M", "1000"},
                                               {"N", "1000"},
                                               {"K", "500"},
                                               {"tflops", "100"}}));
  CHECK(product.seconds == Approx(1e9 / 100e12));
  // 3.5 x 4 x 512^2 x 64 x 32 heads x 16 sequences, half of it causal, at 50 TFLOP/s.
  const auto attention = read_kernel_row(row_of({{"op", "attention"},
                                                 {"dtype", "fp16"},
                                                 {"batch", "16"},
                                                 {"seq", "512"},
                                                 {"head_dim", "64"},
                                                 {"heads", "32"},
                                                 {"causal", "1"},
                                                 {"pass", "fwd+bwd"},
                                                 {"impl", "FlashAttention-2"},
                                                 {"tflops", "50"}}));
  CHECK(attention.seconds == Approx(3.5 * 4 * 512.0 * 512 * 64 * 32 * 16 / 2 / 50e12));
  CHECK_FALSE(read_kernel_row(row_of({{"op", "gemm"}, {"dtype", "fp8"}})).reason.empty());
}

TEST_CASE("a table becomes figures, in JSON as semantics 9 says") {
  const TemporaryDirectory directory;
  const std::string table = directory.path() + "/nccl.csv";
  std::ofstream(table)
      << "id,series,collective,gpu,gpu_mem_gb,nodes,gpus_per_node,n_gpus,size_bytes,"
         "time_us,busbw_GBps\n"
         "X-1,X,all_reduce,A100-SXM4,80,1,8,8,1073741824,8139,\n"
         "X-2,X,all_reduce,A100-SXM4,80,1,8,8,many,8139,\n"
         "X-3,X,all_reduce,MI300X,80,1,8,8,1073741824,8139,\n";
  std::ostringstream out, err;
  REQUIRE(run_program({"validate", "--data", directory.path(), "--processes", "1", "--json"},
                      {out, err}) == 0);
  Json::Value json;
  std::istringstream(out.str()) >> json;
  CHECK(json["kinds"]["nccl"]["rows"] == 2);
  CHECK(json["kinds"]["nccl"]["expressed"] == 1);
  CHECK(json["kinds"]["nccl"]["other_hardware"] == 1);
  REQUIRE(json["rows"].size() == 3);
  CHECK(json["rows"][0]["measured"].asDouble() == Approx(8139e-6));
  // Never faster than 2 x 7/8 GiB over NVLink's 300 GB/s.
  CHECK(json["rows"][0]["predicted"].asDouble() > 1073741824 * 1.75 / 300e9);
  CHECK_THAT(json["rows"][1]["reason"].asString(), Contains("size_bytes \"many\" is no number"));

  std::ofstream(table) << "id,series,gpu\nX-1,X,A100\n";
  CHECK(run_program({"validate", "--data", table}, {out, err}) == 2);
  CHECK_THAT(err.str(), Contains("has no column \"collective\"; needed: "));
}

TEST_CASE("which bytes a row of memory means, and whose unit it is in") {
  const auto read = [](const char* component, const char* framework, const char* unit,
                       const char* model) {
    return read_memory_row(row_of({{"component", component},
                                   {"framework", framework},
                                   {"unit", unit},
                                   {"model", model},
                                   {"value", "2"},
                                   {"seq", "2048"},
                                   {"hidden", "2560"},
                                   {"heads", "32"},
                                   {"TP", "2"},
                                   {"PP", ""},
                                   {"micro_batch", "4"}}));
  };
  const MemoryRow peak = read("peak GPU memory", "nanotron v0.5", "GB per GPU", "");
  CHECK(peak.share == MemoryShare::peak);
  CHECK(peak.measured == 2.0 * (1 << 30));  // its log divides by 1024^3
  CHECK(read("peak GPU memory", "torchtitan", "GB per GPU", "").share == MemoryShare::reserved);
  CHECK(read("activations", "Megatron-LM", "GiB per GPU (first stage)", "").share ==
        MemoryShare::kept);
  const MemoryRow share = read("activation memory relative to tensor-parallel baseline",
                               "Megatron-LM", "%", "GPT 175B");
  CHECK(share.measured == Approx(0.02));
  CHECK(share.training.whole("PP", 0) == 8);
  // Scores of 16 of 32 heads in 16 bit, and a byte of mask each: MiB.
  const auto saved = [&](const char* op) {
    return read("saved activations of op", "Megatron (Aceso profiler)", "MB",
                (std::string("GPT layer op ") + op).c_str())
               .saved /
           (1 << 20);
  };
  CHECK(saved("enc-attention-softmax") == 4.0 * 16 * 2048 * 2048 * 2 / (1 << 20));
  CHECK(saved("enc-attention-dropout") == 4.0 * 16 * 2048 * 2048 * 3 / (1 << 20));
  CHECK(saved("enc-1st-layernorm") == 4.0 * 2048 * (2560 * 2 + 8) / (1 << 20));
  CHECK(saved("enc-MLP-GEMM-1") == 4.0 * 2048 * 4 * 2560 / 2 * 2 / (1 << 20));
  CHECK(read("saved activations of op", "Megatron", "MB", "op unknown").reason != "");
}

TEST_CASE("kernels, exchange and attention of a row follow its framework and GPU") {
  const auto scenario = [](std::vector<std::pair<std::string, std::string>> more) {
    std::vector<std::pair<std::string, std::string>> cells = {{"model", "Qwen3-235B-A22B"},
                                                              {"hidden", "4096"},
                                                              {"layers", "94"},
                                                              {"heads", "64"},
                                                              {"kv_heads", "4"},
                                                              {"vocab", "151936"},
                                                              {"seq", "4096"},
                                                              {"experts", "128"},
                                                              {"topk", "8"},
                                                              {"moe_ffn", "1536"},
                                                              {"moe_layers", "94"},
                                                              {"n_gpus", "256"},
                                                              {"TP", "2"},
                                                              {"PP", "8"},
                                                              {"EP", "32"},
                                                              {"micro_batch", "1"},
                                                              {"global_batch", "2048"},
                                                              {"precision", "BF16"}};
    cells.insert(cells.end(), more.begin(), more.end());
    const TrainingRow row = read_training_row(row_of(cells));
    CHECK(row.reason == "");
    return row.scenario;
  };
  const Scenario zoo =
      scenario({{"framework", "Megatron-LM"}, {"gpu", "H100-SXM"}, {"dispatcher", "DeepEP"}});
  CHECK(zoo.cluster.kernels == "megatron-core");  // Hopper is younger than Megatron-Core
  CHECK(zoo.cluster.collective_algorithm == "deduplicated");
  const Scenario older = scenario({{"framework", "Megatron-LM"}, {"gpu", "A100-SXM4"}});
  CHECK(older.cluster.kernels == "megatron-2021");
  CHECK(older.cluster.collective_algorithm == "auto");
  // The host waits for collectives in Microsoft's fork, not in NVIDIA's original.
  CHECK_FALSE(older.cluster.blocking_wait);
  const Scenario fork = scenario({{"framework", "Megatron-DeepSpeed"}, {"gpu", "A100-SXM4"}});
  CHECK(fork.cluster.kernels == "megatron-2021");
  CHECK(fork.cluster.blocking_wait);
  CHECK(older.cluster.stage_pass_seconds == 0);
  CHECK(fork.cluster.stage_pass_seconds > 0);  // of its pipeline engine
  const Scenario eager = scenario({{"framework", "InternEvo"}, {"gpu", "A100-SXM4"}});
  CHECK(eager.cluster.kernels == "torch-fsdp");
}

TEST_CASE("what a row does not state follows from what it says") {
  std::vector<std::pair<std::string, std::string>> cells = {{"gpu", "A100-SXM4"},
                                                            {"gpu_mem_gb", "80"},
                                                            {"model", "GPT 530B"},
                                                            {"layers", "105"},
                                                            {"hidden", "20480"},
                                                            {"heads", "128"},
                                                            {"seq", "2048"},
                                                            {"framework", "Megatron-LM"},
                                                            {"precision", "fp16"},
                                                            {"n_gpus", "280"},
                                                            {"TP", "8"},
                                                            {"PP", "35"},
                                                            {"micro_batch", "1"},
                                                            {"global_batch", "70"},
                                                            {"tflops_per_gpu", "150"},
                                                            {"tflops_def", "model"}};
  const auto read = [&](const char* column, const char* value) {
    auto changed = cells;
    changed.emplace_back(column, value);
    return read_training_row(row_of(changed));
  };
  // 105 layers on 35 stages: two chunks do not divide them, three do.
  const TrainingRow interleaved = read("notes", "interleaved schedule");
  CHECK(interleaved.scenario.distributed_config.virtual_pipeline_size == 3);
  CHECK(interleaved.scenario.training_config.recompute == "none");
  CHECK(read("notes", "").scenario.distributed_config.virtual_pipeline_size == 1);
  CHECK(read("notes", "1 microbatch pipeline").scenario.training_config.micro_batch_size == 70);
  CHECK_THAT(read("notes", "FFN misconfigured in early tables").reason, Contains("FFN"));
  cells.back().second = "hardware";  // counts a second forward
  CHECK(read("notes", "").scenario.training_config.recompute == "full");
}

TEST_CASE("llm-foundry's attention is Triton's, and FlashAttention-2 in its last table") {
  const auto attention = [](const char* gpu, const char* gpus) {
    return read_training_row(row_of({{"gpu", gpu},
                                     {"model", "MPT-7b"},
                                     {"layers", "32"},
                                     {"hidden", "4096"},
                                     {"heads", "32"},
                                     {"seq", "2048"},
                                     {"framework", "llm-foundry/Composer FSDP"},
                                     {"fabric", "InfiniBand"},
                                     {"precision", "bf16"},
                                     {"n_gpus", gpus},
                                     {"micro_batch", "1"},
                                     {"global_batch", gpus},
                                     {"notes", "FlashAttention"}}))
        .scenario.cluster.attention;
  };
  CHECK(attention("A100-SXM4", "256") == "flash-triton");
  CHECK(attention("H100-SXM", "64") == "flash-triton");
  CHECK(attention("H100-SXM", "128") == "flash2");
}

TEST_CASE(
    "a learned router loads one EP rank more, and Tutel's buffers are as large as they may be") {
  const auto read = [](std::vector<std::pair<std::string, std::string>> more) {
    std::vector<std::pair<std::string, std::string>> cells = {
        {"gpu", "A100-SXM4"}, {"model", "GPT"},     {"layers", "12"},
        {"hidden", "768"},    {"heads", "12"},      {"seq", "1024"},
        {"experts", "64"},    {"topk", "1"},        {"moe_ffn", "3072"},
        {"n_gpus", "8"},      {"EP", "8"},          {"TP", "1"},
        {"PP", "1"},          {"micro_batch", "8"}, {"global_batch", "64"},
        {"precision", "fp16"}};
    cells.insert(cells.end(), more.begin(), more.end());
    return read_training_row(row_of(cells));
  };
  const TrainingRow learned =
      read({{"framework", "Megatron-LM"}, {"routing", "learned router, dropless"}});
  CHECK(learned.scenario.routing.without_numerics == "W2");
  CHECK(learned.scenario.routing.workload.hot_fraction == Approx(1.338 / 8));  // RT-MARIN7668-003
  CHECK(read({{"framework", "Megatron-LM"}, {"routing", "forced balance"}})
            .scenario.routing.without_numerics == "uniform");
  const TrainingRow tutel = read({{"framework", "Tutel MoE"}, {"capacity_factor", "1.5"}});
  CHECK(tutel.padded_choices == 1.5);
  CHECK(!tutel.scenario.model_config.moe_layer_config.capacity_factor);
  CHECK(read({{"framework", "Megatron-LM"}, {"capacity_factor", "1.5"}})
            .scenario.model_config.moe_layer_config.capacity_factor == 1.5);
}

TEST_CASE("a step with padded buffers lies between those of whole numbers of choices") {
  // 10 seconds and 3 for each choice.
  const MakeCluster make([](const Scenario&) { return std::unique_ptr<Cluster>(); },
                         [](const Scenario& s) {
                           StepEstimate step;
                           step.report.step_seconds_median =
                               10 + 3 * static_cast<double>(s.model_config.moe_layer_config.top_k);
                           return step;
                         });
  for (const double choices : {0.5, 1.0, 1.25, 2.0, 3.5})
    CHECK(padded_step_seconds({}, choices, make).value == Approx(10 + 3 * std::max(1.0, choices)));
}

TEST_CASE("DeepSeek's layers have latent attention, and the first ones no experts") {
  const TrainingRow row = read_training_row(row_of({{"model", "DeepSeekV3"},
                                                    {"experts", "256"},
                                                    {"topk", "8"},
                                                    {"shared_experts", "1"},
                                                    {"moe_ffn", "2048"},
                                                    {"moe_layers", "58"},
                                                    {"seq", "4096"},
                                                    {"gpu", "H100-SXM"},
                                                    {"n_gpus", "1024"},
                                                    {"TP", "2"},
                                                    {"PP", "8"},
                                                    {"VP", "4"},
                                                    {"EP", "64"},
                                                    {"framework", "Megatron-Bridge"},
                                                    {"precision", "BF16"},
                                                    {"micro_batch", "1"},
                                                    {"global_batch", "8192"}}));
  REQUIRE(row.reason == "");
  const ModelConfig& m = row.scenario.model_config;
  CHECK(m.latent());
  CHECK(m.num_moe_layers() == 58);
  CHECK_FALSE(m.is_moe_layer(2));
  CHECK(m.is_moe_layer(3));
  // 671 billion parameters, by the model's own report.
  CHECK(static_cast<double>(model_parameters(row.scenario).total()) == Approx(671e9).epsilon(0.01));
}
