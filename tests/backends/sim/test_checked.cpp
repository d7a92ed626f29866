// The access check on the modelled GPU: planted faults are named, right programs pass.
#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "core/device/checked.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

struct Program {
  Backend& device;
  Allocator memory;
  Stream compute, comm;
  std::unique_ptr<Communicator> world;

  explicit Program(Backend& d)
      : device(d),
        memory(d, false),
        compute(d.stream("compute")),
        comm(d.stream("comm")),
        world(d.communicator(all_ranks(d), "world")) {}
  Tensor tensor(const char* name, int64_t rows = 8, Stream stream = {0}) {
    return memory.allocate({rows, 4}, DType::f32, MemoryClass::activations, name, stream);
  }
};

/// Runs on two ranks with and without numerics; the error must be the same.
std::string outcome(const std::function<void(Program&)>& body) {
  std::string texts[2];
  for (const int numerics : {0, 1}) {
    Case c;
    c.scenario = toy_scenario(2);
    c.scenario.training_config.numerics = numerics ? "full" : "none";
    c.wrap = checked;
    try {
      in_child([&] {
        c.run([&](Backend& d) {
          Program program(d);
          body(program);
          d.synchronize(program.compute);
          d.synchronize(program.comm);
        });
      });
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::internal);
      texts[numerics] = error.what();
    }
  }
  CHECK(texts[0] == texts[1]);
  return texts[0];
}

}  // namespace

TEST_CASE("a missing wait names both ops and the tensor") {
  const auto exchange = [](bool wait) {
    return outcome([=](Program& p) {
      const Tensor tokens = p.tensor("tokens");
      p.device.launch(count_up(tokens, 0), p.compute);
      const Event ready = p.device.record(p.compute);
      if (wait) p.device.wait(p.comm, ready);
      p.world->all_reduce(tokens, tokens, ReduceOp::sum, p.comm, "tokens");
    });
  };
  CHECK(exchange(true).empty());
  CHECK_THAT(exchange(false), Contains("all_reduce on stream \"comm\"") &&
                                  Contains("reads \"tokens\" [8,4]") &&
                                  Contains("count_up on stream \"compute\" writes") &&
                                  Contains("a wait is missing"));
}

TEST_CASE("an event recorded too early does not help") {
  CHECK_THAT(outcome([](Program& p) {
               const Tensor t = p.tensor("t");
               const Event early = p.device.record(p.compute);
               p.device.launch(count_up(t, 0), p.compute);
               p.device.wait(p.comm, early);
               p.device.launch(axpb(t, 1, 1), p.comm);
             }),
             Contains("axpb on stream \"comm\"") && Contains("count_up"));
}

TEST_CASE("writing what another stream still reads is found, reading it is no fault") {
  CHECK(outcome([](Program& p) {
          const Tensor t = p.tensor("t");
          const Tensor all = p.tensor("all", 16);
          p.device.launch(count_up(t, 0), p.compute);
          p.device.wait(p.comm, p.device.record(p.compute));
          p.world->all_gather(t, all, p.comm, "t");
          std::vector<float> host(32);
          p.device.write(p.tensor("other"), host.data(), p.compute);
          if (t.has_storage()) p.device.read(t, host.data(), p.compute);  // two readers
        }) == "");
  CHECK_THAT(outcome([](Program& p) {
               const Tensor t = p.tensor("t");
               const Tensor all = p.tensor("all", 16);
               p.device.launch(count_up(t, 0), p.compute);
               p.device.wait(p.comm, p.device.record(p.compute));
               p.world->all_gather(t, all, p.comm, "t");
               p.device.launch(count_up(t, 1), p.compute);
             }),
             Contains("count_up on stream \"compute\"") && Contains("writes \"t\"") &&
                 Contains("all_gather on stream \"comm\" reads"));
}

TEST_CASE("order is passed on: over a third stream, and by the host's waiting") {
  CHECK(outcome([](Program& p) {
          const Stream third = p.device.stream("third");
          const Tensor t = p.tensor("t");
          p.device.launch(count_up(t, 0), p.compute);
          p.device.wait(third, p.device.record(p.compute));
          p.device.wait(p.comm, p.device.record(third));
          p.device.launch(axpb(t, 1, 1), p.comm);
          p.device.synchronize(p.comm);
          p.device.launch(axpb(t, 1, 1), third);
        }) == "");
}

TEST_CASE("views are the bytes they cover") {
  const auto halves = [](int64_t first) {
    return outcome([=](Program& p) {
      const Tensor t = p.tensor("t");
      p.device.launch(count_up(t.rows(0, 4), 0), p.compute);
      p.device.launch(count_up(t.rows(first, 4), 0), p.comm);
    });
  };
  CHECK(halves(4).empty());
  CHECK_THAT(halves(3), Contains("count_up on stream \"comm\""));
}

TEST_CASE("an all-to-all uses the rows it moves, no others") {
  const auto chunk = [](int64_t begin) {
    return outcome([=](Program& p) {
      const auto sizes = [](std::vector<int64_t> v) {
        return std::make_shared<const std::vector<int64_t>>(std::move(v));
      };
      const Tensor from = p.tensor("from"), to = p.tensor("to");
      p.device.launch(count_up(from, 0), p.compute);
      p.device.wait(p.comm, p.device.record(p.compute));
      p.world->all_to_all_v(from, to, sizes({2, 2}), sizes({0, 2}), sizes({2, 2}), sizes({0, 2}),
                            p.comm, "dispatch");
      p.device.launch(axpb(to.rows(begin, 4), 1, 0), p.compute);  // the other half, or not
    });
  };
  CHECK(chunk(4).empty());
  CHECK_THAT(chunk(2), Contains("axpb on stream \"compute\"") && Contains("\"to\"") &&
                           Contains("all_to_all_v on stream \"comm\" writes"));
}

TEST_CASE("use after release names the op, the tensor and its last use") {
  CHECK_THAT(outcome([](Program& p) {
               Tensor t = p.tensor("scores");
               const Tensor kept = t;
               p.device.launch(count_up(t, 0), p.compute);
               p.memory.release(t);
               p.device.launch(axpb(kept, 1, 1), p.compute);
             }),
             Contains("axpb on stream \"compute\"") && Contains("\"scores\"") &&
                 Contains("given back after its last use in count_up"));
}

TEST_CASE("memory that another stream still uses and that is handed out again is found") {
  const auto reuse = [](bool wait) {
    return outcome([=](Program& p) {
      {
        const Tensor sent = p.tensor("sent");
        p.device.launch(count_up(sent, 0), p.compute);
        p.device.wait(p.comm, p.device.record(p.compute));
        p.world->all_reduce(sent, sent, ReduceOp::sum, p.comm, "sent");
      }  // back in the allocator while `comm` uses it
      if (wait) p.device.wait(p.compute, p.device.record(p.comm));
      const Tensor next = p.tensor("next");
      p.device.launch(count_up(next, 0), p.compute);
    });
  };
  CHECK(reuse(true).empty());
  CHECK_THAT(reuse(false), Contains("count_up on stream \"compute\"") &&
                               Contains("writes \"next\"") && Contains("as \"sent\""));
}
