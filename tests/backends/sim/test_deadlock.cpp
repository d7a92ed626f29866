// What cannot go on says who waits for whom; what is uneven but right goes on.
#include <catch2/catch.hpp>
#include <numeric>

#include "core/base/error.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

Case phantom(int64_t world) {
  Case c;
  c.scenario = toy_scenario(world);
  c.scenario.training_config.numerics = "none";
  c.profile = ideal();
  return c;
}
Tensor shape_only(int64_t elements) {
  Tensor t;
  t.shape = {elements};
  return t;
}
HostSizes sizes(std::vector<int64_t> values) {
  return std::make_shared<const std::vector<int64_t>>(std::move(values));
}

/// The deadlock error of a case; fails when it ends otherwise.
std::string deadlock(const Case& c, const std::function<void(Backend&)>& program) {
  try {
    in_child([&] { c.run(program); });
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::deadlock);
    return error.what();
  }
  FAIL("no error");
  return "";
}

}  // namespace

TEST_CASE("two communicators in crossed order wait in a circle that is named", "[P036]") {
  const std::string text = deadlock(phantom(2), [](Backend& d) {
    const Stream s = d.stream("comm");
    const auto a = d.communicator(all_ranks(d), "A"), b = d.communicator(all_ranks(d), "B");
    const auto reduce = [&] {
      a->all_reduce(shape_only(8), shape_only(8), ReduceOp::sum, s, "gradients");
    };
    const auto exchange = [&] {
      Tensor t;
      t.shape = {2, 4};
      b->all_to_all_v(t, t, sizes({1, 1}), sizes({0, 1}), sizes({1, 1}), sizes({0, 1}), s,
                      "dispatch");
    };
    if (d.properties().rank == 0) {
      reduce();
      exchange();
    } else {
      exchange();
      reduce();
    }
    d.synchronize(s);
  });
  CHECK_THAT(text, Contains("all_reduce 1 of group A (\"gradients\"): rank 0"));
  CHECK_THAT(text, Contains("all_to_all_v 1 of group B (\"dispatch\"): rank 1"));
  CHECK_THAT(text, Contains("rank 0 -> rank 1 -> rank 0"));
}

TEST_CASE("a rank that ends without its collective is named", "[P217]") {
  const std::string text = deadlock(phantom(3), [](Backend& d) {
    const Stream s = d.stream("comm");
    const auto world = d.communicator(all_ranks(d), "world");
    world->barrier(s);
    if (d.properties().rank == 2) return;
    world->all_reduce(shape_only(8), shape_only(8), ReduceOp::max, s, "flags");
    d.synchronize(s);
  });
  CHECK_THAT(text, Contains("all_reduce 2 of group world (\"flags\"): ranks 0, 1"));
  CHECK_THAT(text, Contains("rank 2 (its program has ended; last called barrier 1 of group world"));
}

TEST_CASE("a rank that never arrives at the very first collective is named", "[P042]") {
  const std::string text = deadlock(phantom(2), [](Backend& d) {
    const Stream s = d.stream("comm");
    const auto world = d.communicator(all_ranks(d), "world");
    if (d.properties().rank == 1) return;
    world->all_reduce(shape_only(8), shape_only(8), ReduceOp::sum, s, "gradients");
    d.synchronize(s);
  });
  CHECK_THAT(text, Contains("all_reduce 1 of group world (\"gradients\"): rank 0 waits in it") &&
                       Contains("for rank 1 (its program has ended; has called none)"));
}

TEST_CASE("one of 64 ranks is held up for ever before the thousandth collective", "[P044][P045]") {
  const std::string text = deadlock(phantom(64), [](Backend& d) {
    const Stream s = d.stream("comm"), aside = d.stream("aside");
    const auto world = d.communicator(all_ranks(d), "world"),
               other = d.communicator(all_ranks(d), "other");
    for (int call = 1; call <= 1000; ++call) {
      if (call == 1000 && d.properties().rank == 37) {
        other->recv(shape_only(1), 36, aside, "news");
        d.synchronize(aside);  // nobody sends it any
      }
      world->all_reduce(shape_only(8), shape_only(8), ReduceOp::sum, s, "gradients");
      d.synchronize(s);
    }
  });
  // The first line after the headline: which collective, 8 and 55 of the 63 present, who is
  // missing.
  CHECK_THAT(text,
             Contains("deadlock: no rank can go on.\n  all_reduce 1000 of group world "
                      "(\"gradients\"): ranks 0, 1, 2, 3, 4, 5, 6, 7 and 55 more wait in it"));
  CHECK_THAT(text, Contains("for rank 37 (has not called it; last called recv 1 of group other "
                            "(\"news\"))"));
  CHECK_THAT(text, Contains("recv 1 of group other (\"news\"): rank 37 waits in it"));
}

TEST_CASE("a send without its receive is a deadlock, matching ones pass in order") {
  const std::string text = deadlock(phantom(2), [](Backend& d) {
    const Stream s = d.stream("comm");
    const auto world = d.communicator(all_ranks(d), "world");
    if (d.properties().rank == 0) world->send(shape_only(8), 1, s, "activations");
    d.synchronize(s);
  });
  CHECK_THAT(text, Contains("send 1 of group world (\"activations\"): rank 0"));
  CHECK_THAT(text, Contains("rank 1 (its program has ended; has called none)"));
}

TEST_CASE("disagreements name both ranks and what differs") {
  const auto differs = [](const std::function<void(Communicator&, Stream)>& call) {
    return deadlock(phantom(2), [&](Backend& d) {
      const Stream s = d.stream("comm");
      const auto world = d.communicator(all_ranks(d), "world");
      world->barrier(s);
      call(*world, s);
      d.synchronize(s);
    });
  };
  CHECK_THAT(differs([](Communicator& c, Stream s) {
               c.all_reduce(shape_only(8), shape_only(8), c.rank() ? ReduceOp::max : ReduceOp::sum,
                            s, "t");
             }),
             Contains("ranks 0 and 1 disagree about call 2 of group world") &&
                 Contains("all_reduce(sum of 8 x fp32)") &&
                 Contains("all_reduce(max of 8 x fp32)"));
  CHECK_THAT(differs([](Communicator& c, Stream s) {
               if (c.rank())
                 c.all_gather(shape_only(4), shape_only(8), s, "parameters");
               else
                 c.all_reduce(shape_only(8), shape_only(8), ReduceOp::sum, s, "gradients");
             }),
             Contains("all_reduce(sum of 8 x fp32) \"gradients\"") &&
                 Contains("all_gather(4 x fp32) \"parameters\""));
  CHECK_THAT(differs([](Communicator& c, Stream s) {
               Tensor t = shape_only(8);
               if (c.rank()) t.dtype = DType::bf16;
               c.broadcast(t, 0, s, "t");
             }),
             Contains("fp32") && Contains("bf16"));
  CHECK_THAT(differs([](Communicator& c, Stream s) {
               Tensor t;
               t.shape = {4, 16};
               // Rank 0 sends 3 rows to rank 1, which expects 2.
               c.all_to_all_v(
                   t, t, sizes(c.rank() ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{1, 3}),
                   sizes({0, 1}),
                   sizes(c.rank() ? std::vector<int64_t>{2, 1} : std::vector<int64_t>{1, 1}),
                   sizes({0, 1}), s, "dispatch");
             }),
             Contains("rank 0 sends 3 rows of 64 bytes to rank 1, which expects 2 rows"));
}

TEST_CASE("an error of one rank ends all, and the first one is told") {
  try {
    in_child([] {
      phantom(4).run([](Backend& d) {
        const Stream s = d.stream("comm");
        const auto world = d.communicator(all_ranks(d), "world");
        world->barrier(s);
        d.synchronize(s);
        if (d.properties().rank == 2) throw Error(ErrorClass::capacity, "rank 2 is full");
        if (d.properties().rank == 3) d.abort("rank 3 gives up");
        world->barrier(s);
        d.synchronize(s);
      });
    });
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::capacity);
    CHECK(std::string(error.what()) == "rank 2 is full");
  }
}

TEST_CASE("programs that own memory and communicators unwind when they are killed") {
  CHECK_THROWS_WITH(in_child([] {
                      Case c;
                      c.scenario = toy_scenario(3);
                      c.run([](Backend& d) {
                        Allocator memory(d, false);
                        const Stream s = d.stream("comm");
                        const auto world = d.communicator(all_ranks(d), "world");
                        const Tensor t =
                            memory.allocate({1000}, DType::f32, MemoryClass::activations, "t", s);
                        world->all_reduce(t, t, ReduceOp::sum, s, "t");
                        if (d.properties().rank == 1) throw std::runtime_error("rank 1 fails");
                        d.synchronize(s);
                        world->all_reduce(t, t, ReduceOp::sum, s, "t");
                        d.synchronize(s);
                      });
                    }),
                    Contains("rank 1 fails"));
}

TEST_CASE("zero rows, zero columns and no bytes at all still take part, 5,000 times", "[P030]") {
  // Round r: rank 1 sends nothing; nobody sends to rank 2; nobody sends anything.
  const auto calls = phantom(4).numbers([](Backend& d) {
    const Stream s = d.stream("comm");
    const auto world = d.communicator(all_ranks(d), "world");
    const int64_t me = d.properties().rank;
    const auto rows = [](int64_t round, int64_t from, int64_t to) -> int64_t {
      if (round % 3 == 0) return from == 1 ? 0 : 1 + to;
      if (round % 3 == 1) return to == 2 ? 0 : 1 + from;
      return 0;
    };
    for (int64_t round = 0; round < 5000; ++round) {
      std::vector<int64_t> to, from;
      for (int64_t j = 0; j < 4; ++j) {
        to.push_back(rows(round, me, j));
        from.push_back(rows(round, j, me));
      }
      Tensor t;
      t.shape = {std::accumulate(to.begin(), to.end(), int64_t{0}), 4};
      world->all_to_all_v(t, t, sizes(to), sizes({0, 0, 0, 0}), sizes(from), sizes({0, 0, 0, 0}), s,
                          "dispatch");
    }
    d.synchronize(s);
    const Profile p = d.take_profile(false);
    int64_t calls = 0;  // with and without bytes to send, which has a way or none
    for (const Traffic& t : p.traffic) calls += t.calls;
    CHECK(calls == 5000);
    return static_cast<double>(world->calls());
  });
  CHECK(calls == std::vector<double>(4, 5000));
}

TEST_CASE("ranks without tokens issue as many collectives as the others", "[P023][P029]") {
  const auto calls = phantom(4).numbers([](Backend& d) {
    const Stream s = d.stream("comm");
    const auto world = d.communicator(all_ranks(d), "world");
    const int64_t me = d.properties().rank;
    d.take_profile(true);
    // All tokens go to ranks 0 to 2, and come back.
    const std::vector<int64_t> out{2, 2, 2, 0}, nothing{0, 0, 0, 0}, in{2, 2, 2, 2};
    Tensor t;
    t.shape = {8, 4};
    const HostSizes at = sizes({0, 0, 0, 0});
    world->all_to_all_v(t, t, sizes(out), at, sizes(me < 3 ? in : nothing), at, s, "dispatch");
    world->all_to_all_v(t, t, sizes(me < 3 ? in : nothing), at, sizes(out), at, s, "combine");
    d.synchronize(s);
    const Profile p = d.take_profile(true);
    int64_t seen = 0;
    for (const Interval& i : p.intervals) seen += i.activity == Activity::all_to_all;
    CHECK(seen == 2);
    return static_cast<double>(world->calls());
  });
  CHECK(calls == std::vector<double>(4, 2));
}
