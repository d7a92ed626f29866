// One emulated GPU behind the boundary: memory, copies, order, what is recorded of time; and what
// is refused at the start.
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "core/base/error.h"
#include "core/device/allocator.h"
#include "tests/cuda_on_host/backend/ranks.h"
#include "tests/cuda_on_host/runtime/settings.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

Group everyone(int64_t world) {
  Group g;
  g.n1 = world;
  return g;
}

std::string one_rank(const RankProgram& program) {
  const auto ended = as_threads(world_of(1), program);
  CHECK(ended.at(0).exit_code == 0);
  return ended.at(0).text;
}

std::string refusal(const Scenario& s, const CudaOptions& options = emulated_options()) {
  const auto ended = as_threads(
      s, [](Backend&) { return "it ran"; }, options);
  CHECK(ended.at(0).exit_code == static_cast<int>(ErrorClass::configuration));
  return ended.at(0).text;
}

}  // namespace

TEST_CASE("what is written is read back, beyond the staging memory too") {
  CHECK(one_rank([](Backend& device) {
          Allocator memory(device, false);
          const Stream stream = device.stream("test");
          std::vector<int64_t> values(5'000'001), back(values.size());
          std::iota(values.begin(), values.end(), 17);
          const Tensor t = memory.allocate({static_cast<int64_t>(values.size())}, DType::i64,
                                           MemoryClass::activations, "t", stream);
          const std::vector<int64_t> wanted = values;
          device.write(t, values.data(), stream);
          std::fill(values.begin(), values.end(), 0);  // the host's memory is free again
          device.read(t, back.data(), stream);
          const Tensor none =
              memory.allocate({0}, DType::f32, MemoryClass::control, "none", stream);
          device.write(none, values.data(), stream);
          device.read(none, back.data(), stream);
          return std::string(back == wanted ? "equal" : "different");
        }) == "equal");
}

TEST_CASE("a missing wait between streams shows, a wait mends it") {
  // A write on one stream, read on another; streams are late at random.
  const auto wrong_reads = [](bool waits) {
    return one_rank([waits](Backend& device) {
      emulated::settings().delay_chance = 1;
      emulated::settings().delay_microseconds = 3000;
      Allocator memory(device, false);
      const Stream writer = device.stream("writer"), reader = device.stream("reader");
      int wrong = 0;
      for (int trial = 0; trial < 30; ++trial) {
        const Tensor t = memory.allocate({1}, DType::i32, MemoryClass::control, "t", writer);
        const int32_t value = trial + 1;
        int32_t seen = 0;
        device.write(t, &value, writer);
        if (waits) device.wait(reader, device.record(writer));
        device.read(t, &seen, reader);
        wrong += seen != value;
        device.synchronize(writer);
      }
      return std::to_string(wrong);
    });
  };
  CHECK(wrong_reads(true) == "0");
  CHECK(std::stoi(wrong_reads(false)) > 0);
}

TEST_CASE("events stay valid for ever, also long over") {
  CHECK(one_rank([](Backend& device) {
          const Stream a = device.stream("a"), b = device.stream("b");
          const Event first = device.record(a);
          for (int i = 0; i < 200; ++i) {
            device.wait(b, device.record(a));
            if (i % 50 == 0) device.synchronize(b);
          }
          device.wait(b, first);
          device.synchronize(b);
          return std::string("done");
        }) == "done");
}

TEST_CASE("memory ends where the device's does, and poison is NaN") {
  const auto ended = as_threads(world_of(1), [](Backend& device) {
    Allocator memory(device, false);
    memory.allocate({device.properties().memory_bytes / 4 + 1}, DType::f32,
                    MemoryClass::activations, "too much", device.stream("test"));
    return std::string();
  });
  CHECK(ended[0].exit_code == static_cast<int>(ErrorClass::capacity));
  CHECK_THAT(ended[0].text, Contains("out of memory on rank 0") && Contains("too much"));

  Scenario s = world_of(1);
  s.memory.poison = true;
  CHECK(as_threads(s,
                   [](Backend& device) {
                     Allocator memory(device, true);
                     const Stream stream = device.stream("test");
                     const float one = 1;
                     float seen = 0;
                     for (int i = 0; i < 2; ++i) {  // the second time it is the same piece
                       const Tensor t =
                           memory.allocate({1}, DType::f32, MemoryClass::activations, "t", stream);
                       device.read(t, &seen, stream);
                       if (!std::isnan(seen)) return std::string("not poisoned");
                       device.write(t, &one, stream);
                     }
                     return std::string("poisoned");
                   })[0]
            .text == "poisoned");
}

TEST_CASE("a collective begins when its last member comes, also where a rank waited in it") {
  const auto ended = as_threads(world_of(2), [](Backend& device) {
    Allocator memory(device, false);
    const Stream stream = device.stream("test");
    const auto world = device.communicator(everyone(2), "world");
    const Tensor t = memory.allocate({64}, DType::f32, MemoryClass::control, "t", stream);
    world->barrier(stream);
    device.take_profile(true);
    if (device.properties().rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const double called = device.now();
    world->all_reduce(t, t, ReduceOp::sum, stream, "gradients");
    device.synchronize(stream);
    const double over = device.now();
    const Profile profile = device.take_profile(true);
    std::string text;
    for (const Interval& i : profile.intervals) {
      if (i.stream != stream.id) continue;
      text += std::string(i.name) + " " + i.group + " " + std::to_string(i.bytes);
      // Rank 1 came 200 ms late: the collective is short on both, and on rank 0 it begins long
      // after the call.
      if (device.properties().rank == 0 && i.start - called < 0.1) text += ", too early";
      if (i.end > over + 0.01) text += ", ends too late";
    }
    for (const Traffic& traffic : profile.traffic)
      text += "; " + traffic.kind + " " + traffic.purpose + " " + std::to_string(traffic.calls) +
              " " + std::to_string(traffic.bytes);
    return text;
  });
  // A ring of two passes 2 (n-1)/n of 256 bytes.
  for (const Ended& e : ended) CHECK(e.text == "all_reduce world 256; all_reduce gradients 1 256");
}

TEST_CASE("phases, copies and the host's time are told apart") {
  const std::string text = one_rank([](Backend& device) {
    Allocator memory(device, false);
    const Stream stream = device.stream("test");
    const Tensor t = memory.allocate({64}, DType::f32, MemoryClass::control, "t", stream);
    std::vector<float> values(64);
    device.take_profile(false);
    device.phase(Phase::data, "data");
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    device.phase(Phase::forward, "forward");
    device.write(t, values.data(), stream);
    device.read(t, values.data(), stream);
    device.phase(Phase::other, "");
    const Profile profile = device.take_profile(false);
    std::string seen;
    double data = 0;
    for (const Interval& i : profile.intervals) {
      if (i.end < i.start) seen += "backwards ";
      if (i.stream == -1 && i.activity == Activity::data) data += i.end - i.start;
      if (i.stream == stream.id)
        seen += std::string(i.name) + " " + activity_name(i.activity) + " " + phase_name(i.phase) +
                " " + std::to_string(i.bytes) + "; ";
    }
    return seen + (data >= 0.03 ? "data" : "no data");
  });
  CHECK(text == "write offload forward 256; read offload forward 256; data");
}

TEST_CASE("what cannot run is refused with what to do") {
  Scenario s = world_of(9);
  CHECK_THAT(refusal(s), Contains("world_size is 9 but this machine shows 8 GPUs") &&
                             Contains("--gpus 8") && Contains("docs/run-on-gpus.md"));
  s = world_of(1);
  s.training_config.numerics = "none";
  CHECK_THAT(refusal(s), Contains("numerics \"none\"") && Contains("--backend sim"));
  s = world_of(1);
  s.training_config.dtype = "fp64";
  CHECK_THAT(refusal(s), Contains("fp64") && Contains("fp32, bf16, fp16"));
}

TEST_CASE("an interface that does not exist is named before anything starts", "[P160]") {
  Scenario s = world_of(1);
  s.nccl["NCCL_SOCKET_IFNAME"] = "eth99";
  CHECK_THAT(refusal(s), Contains("NCCL_SOCKET_IFNAME=eth99 selects no network interface") &&
                             Contains("it has: ") && Contains("lo"));
}

TEST_CASE("two ranks on one GPU, ranks that are missing, a port that is taken") {
  const RankProgram program = [](Backend&) { return std::string("it ran"); };
  auto ended = as_processes(world_of(2), program, emulated_options(),
                            [](int64_t, std::map<std::string, std::string>& v) {
                              v["LOCAL_RANK"] = "0";
                              v.erase("LOCAL_WORLD_SIZE");
                            });
  for (const Ended& e : ended) {
    CHECK(e.exit_code == static_cast<int>(ErrorClass::configuration));
    CHECK_THAT(e.text,
               Contains("ranks 0 and 1 both use GPU 0000:01:00.0") && Contains("LOCAL_RANK") &&
                   !Contains("self-test"));  // which had not begun
  }
  CudaOptions hurried = emulated_options();
  hurried.rendezvous_seconds = 1;
  ended = as_processes(world_of(4), program, hurried,
                       [](int64_t rank, std::map<std::string, std::string>& v) {
                         if (rank == 2) v.clear();
                       });
  REQUIRE(ended.size() == 3);
  for (const Ended& e : ended) {
    CHECK(e.exit_code == static_cast<int>(ErrorClass::fault));
    CHECK_THAT(e.text, Contains("rank 2 of 4 has not come") && !Contains("self-test"));
  }
}

TEST_CASE("processes gather bytes and post to the first one") {
  std::string posted;
  AroundRun around;
  around.before = [&](CudaCluster& cluster) {
    cluster.on_post([&](const std::string& bytes) { posted += bytes; });
  };
  around.after = [&](CudaCluster& cluster) {
    return cluster.first_process() ? "; posted " + std::to_string(posted.size()) : "";
  };
  const auto ended = as_processes(
      world_of(3),
      [](Backend& device) {
        CudaCluster& cluster = *running_cluster();
        std::string text = std::to_string(device.properties().node) + " " +
                           std::to_string(device.properties().gpus_per_node);
        for (const std::string& bytes :
             cluster.gather_bytes(std::to_string(device.properties().rank)))
          text += " " + bytes;
        cluster.post(std::string(static_cast<size_t>(1000 * (device.properties().rank + 1)), 'x'));
        cluster.gather_bytes("");  // every post is in before rank 0 ends
        return text;
      },
      emulated_options(), nullptr, 100, around);
  REQUIRE(ended.size() == 3);
  CHECK(ended[0].text == "0 3 0 1 2; posted 6000");
  CHECK(ended[1].text == "0 3 0 1 2");
}

TEST_CASE("temperature, clocks and power of every rank's GPU are there after a run") {
  CudaOptions options = emulated_options();
  options.nvml_library = FAKE_NVML;
  AroundRun around;
  around.after = [](CudaCluster& cluster) {
    std::string text;
    for (const RankGpu& g : cluster.gpus())
      text += std::to_string(g.rank) + " " + g.name + " " + g.pci + ": " +
              std::to_string(g.temperature_celsius) + " C, " + std::to_string(g.sm_clock_mhz) +
              "/" + std::to_string(g.sm_clock_most_mhz) + " MHz, " +
              std::to_string(static_cast<int>(g.power_watts)) + " W, " + g.slowed_by + "; ";
    return text;
  };
  const std::string wanted =
      "0 Emulated GPU 0000:01:00.0: 81 C, 1200/1980 MHz, 650 W, thermal (software); "
      "1 Emulated GPU 0000:02:00.0: 82 C, 1200/1980 MHz, 650 W, thermal (software); ";
  const RankProgram nothing = [](Backend&) { return std::string(); };
  CHECK(as_threads(world_of(2), nothing, options, around).at(0).text == wanted);
  CHECK(as_processes(world_of(2), nothing, options, nullptr, 100, around).at(0).text == wanted);
  options.nvml_library = "no-such-library.so";
  CHECK_THAT(as_threads(world_of(2), nothing, options, around).at(0).text, Contains(": -1 C"));
}
