// Who started a process, from the variables that launchers set.
#include <catch2/catch.hpp>
#include <map>

#include "backends/cuda/job/launch.h"
#include "core/base/error.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

using Variables = std::map<std::string, std::string>;

Environment with(Variables variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    if (it == variables.end()) return std::nullopt;
    return it->second;
  };
}

Scenario of_world(int64_t world) {
  Scenario s;
  s.distributed_config.world_size = world;
  s.distributed_config.data_parallel_size = world / 2;
  s.distributed_config.expert_parallel_size = 2;
  return s;
}

Variables torchrun() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"MASTER_ADDR", "n0"},
          {"MASTER_PORT", "29400"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"TORCHELASTIC_RUN_ID", "abc"},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
}

std::string refusal(const Variables& variables, int64_t world = 8) {
  try {
    find_launch(with(variables), of_world(world));
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::configuration);
    return error.what();
  }
  return "not refused";
}

}  // namespace

TEST_CASE("without a launcher all ranks are threads of this process") {
  const Launch l = find_launch(with({{"HOME", "/"}}), of_world(4));
  CHECK(l.all_ranks_here);
  CHECK(l.world == 4);
  // In a batch script without srun Slurm has set some variables already.
  CHECK(find_launch(with({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}}), of_world(4))
            .all_ranks_here);
}

TEST_CASE("torchrun: the port is the agent's, the store stands behind it") {
  const Launch l = find_launch(with(torchrun()), of_world(8));
  CHECK(l.launcher == "torchrun");
  CHECK_FALSE(l.all_ranks_here);
  CHECK(l.rank == 5);
  CHECK(l.world == 8);
  CHECK(l.local_rank == 1);
  CHECK(l.local_world == 4);
  CHECK(l.address == "n0");
  CHECK(l.port == 29400);
  CHECK(l.more_ports > 0);
  CHECK(l.job == "abc/0");
  Variables static_store = torchrun();
  static_store["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  CHECK(find_launch(with(static_store), of_world(8)).more_ports == 0);
  // Started by srun, whose variables its processes inherit.
  Variables under_slurm = torchrun();
  under_slurm.insert(
      {{"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  CHECK(find_launch(with(under_slurm), of_world(8)).rank == 5);
}

TEST_CASE("DeepSpeed's launcher, Open MPI, MPICH and srun") {
  const Launch deepspeed = find_launch(with({{"RANK", "3"},
                                             {"WORLD_SIZE", "8"},
                                             {"LOCAL_RANK", "3"},
                                             {"LOCAL_SIZE", "8"},
                                             {"CROSS_RANK", "0"},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MASTER_PORT", "29500"}}),
                                       of_world(8));
  CHECK(deepspeed.launcher == "deepspeed");
  CHECK(deepspeed.rank == 3);
  CHECK(deepspeed.local_world == 8);

  const Launch mpi = find_launch(with({{"OMPI_COMM_WORLD_RANK", "2"},
                                       {"OMPI_COMM_WORLD_SIZE", "8"},
                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}}),
                                 of_world(8));
  CHECK(mpi.launcher == "Open MPI");
  CHECK(mpi.address == "127.0.0.1");  // all on one node

  const Launch mpich = find_launch(with({{"PMI_RANK", "1"},
                                         {"PMI_SIZE", "8"},
                                         {"MPI_LOCALRANKID", "1"},
                                         {"MPI_LOCALNRANKS", "8"}}),
                                   of_world(8));
  CHECK(mpich.rank == 1);

  const Launch slurm = find_launch(with({{"SLURM_PROCID", "6"},
                                         {"SLURM_STEP_NUM_TASKS", "8"},
                                         {"SLURM_LOCALID", "2"},
                                         {"SLURM_STEP_ID", "0"},
                                         {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                                         {"SLURM_JOB_ID", "30017"}}),
                                   of_world(8));
  CHECK(slurm.launcher == "srun");
  CHECK(slurm.rank == 6);
  CHECK(slurm.local_rank == 2);
  CHECK(slurm.address == "gpu07");
  CHECK(slurm.port == 20000 + 30017 % 20000);
  CHECK(slurm.job == "30017");
}

TEST_CASE("the scenario may name the meeting place") {
  Scenario s = of_world(8);
  s.distributed_config.master_addr = "10.0.0.9";
  s.distributed_config.master_port = "4444";
  const Launch l = find_launch(with(torchrun()), s);
  CHECK(l.address == "10.0.0.9");
  CHECK(l.port == 4444);
  CHECK(l.more_ports == 0);
}

TEST_CASE("wrong and missing variables are refused with what to do") {
  Variables v = torchrun();
  v["WORLD_SIZE"] = "4";
  v["RANK"] = "3";
  CHECK_THAT(refusal(v), Contains("torchrun started 4 processes (WORLD_SIZE=4) but "
                                  "distributed_config.world_size is 8") &&
                             Contains("Start 8") &&
                             Contains("--set distributed_config.world_size=4 --set "
                                      "distributed_config.data_parallel_size=2"));
  v["WORLD_SIZE"] = "3";
  v["RANK"] = "1";
  CHECK_THAT(refusal(v), Contains("does not divide 3"));
  v = torchrun();
  v["RANK"] = "8";
  CHECK_THAT(refusal(v), Contains("RANK=8 is not an integer from 0 to 7"));
  v["RANK"] = "two";
  CHECK_THAT(refusal(v), Contains("RANK=two"));
  v = torchrun();
  v["MASTER_PORT"] = "70000";
  CHECK_THAT(refusal(v), Contains("MASTER_PORT=70000 is not an integer from 1 to 65535"));
  v = torchrun();
  v.erase("LOCAL_RANK");
  CHECK_THAT(refusal(v), Contains("LOCAL_RANK is missing") && Contains("torchrun"));
  v = torchrun();
  v.erase("MASTER_ADDR");
  CHECK_THAT(refusal(v), Contains("MASTER_ADDR is missing") && Contains("-x MASTER_ADDR"));
  v = torchrun();
  v["MASTER_ADDR"] = "localhost";  // rank 5 with local rank 1: rank 0 is elsewhere
  CHECK_THAT(refusal(v), Contains("localhost") && Contains("another node"));
  CHECK_THAT(refusal({{"WORLD_SIZE", "8"}}), Contains("RANK is not"));
  // RANK exported by hand and forgotten: every process of mpirun would be rank 0.
  CHECK_THAT(refusal({{"RANK", "0"},
                      {"WORLD_SIZE", "8"},
                      {"LOCAL_RANK", "0"},
                      {"OMPI_COMM_WORLD_RANK", "3"},
                      {"OMPI_COMM_WORLD_SIZE", "8"}}),
             Contains("contradict") && Contains("RANK=0") && Contains("OMPI_COMM_WORLD_RANK=3"));
}

TEST_CASE("the first host of a Slurm node list") {
  CHECK(first_slurm_host("n7") == "n7");
  CHECK(first_slurm_host("n7,n8") == "n7");
  CHECK(first_slurm_host("gpu[07-09,12],n3") == "gpu07");
  CHECK(first_slurm_host("gpu[5,9]-ib") == "gpu5-ib");
  CHECK(first_slurm_host("a-b[1-2]") == "a-b1");
}
