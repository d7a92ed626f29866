// Numerics: what collectives leave in memory, order by events, errors inside closures, and that the
// number of threads changes nothing.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "core/base/error.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

Case full(int64_t world, int threads = 2) {
  Case c;
  c.scenario = toy_scenario(world);
  c.threads = threads;
  return c;
}
HostSizes sizes(std::vector<int64_t> values) {
  return std::make_shared<const std::vector<int64_t>>(std::move(values));
}

/// Everybody's value of one program, as floats.
std::vector<float> floats(
    const Case& c, size_t each,
    const std::function<Tensor(Backend&, Allocator&, Communicator&, Stream)>& program) {
  return in_child([&] {
    std::vector<float> all(each * static_cast<size_t>(c.scenario.distributed_config.world_size));
    c.run([&](Backend& d) {
      Allocator memory(d, true);
      const Stream s = d.stream("comm");
      const auto world = d.communicator(all_ranks(d), "world");
      const Tensor t = program(d, memory, *world, s);
      REQUIRE(static_cast<size_t>(t.elements()) == each);
      d.read(t, all.data() + each * static_cast<size_t>(d.properties().rank), s);
    });
    return all;
  });
}

}  // namespace

TEST_CASE("gather, scatter, broadcast and send move the right rows") {
  CHECK(floats(full(3), 6, [](Backend& d, Allocator& m, Communicator& c, Stream s) {
          const Tensor all = m.allocate({6}, DType::f32, MemoryClass::parameters, "all");
          const Tensor mine = all.rows(2 * c.rank(), 2);  // in place
          d.launch(count_up(mine, 10.0 * static_cast<double>(c.rank())), s);
          c.all_gather(mine, all, s, "parameters");
          return all;
        }) == std::vector<float>{0, 1, 10, 11, 20, 21, 0, 1, 10, 11, 20, 21, 0, 1, 10, 11, 20, 21});
  CHECK(floats(full(3), 2, [](Backend& d, Allocator& m, Communicator& c, Stream s) {
          const Tensor all = m.allocate({6}, DType::f32, MemoryClass::gradients, "all");
          d.launch(count_up(all, 100.0 * static_cast<double>(c.rank())), s);
          const Tensor mine = all.rows(2 * c.rank(), 2);
          c.reduce_scatter(all, mine, ReduceOp::sum, s, "gradients");
          return mine;
        }) == std::vector<float>{300, 303, 306, 309, 312, 315});
  CHECK(floats(full(3), 2, [](Backend& d, Allocator& m, Communicator& c, Stream s) {
          const Tensor t = m.allocate({2}, DType::f32, MemoryClass::parameters, "t");
          d.launch(count_up(t, static_cast<double>(c.rank())), s);
          c.broadcast(t, 1, s, "parameters");
          return t;
        }) == std::vector<float>{1, 2, 1, 2, 1, 2});
  CHECK(floats(full(3), 1, [](Backend& d, Allocator& m, Communicator& c, Stream s) {
          const Tensor t = m.allocate({1}, DType::f32, MemoryClass::activations, "t");
          d.launch(count_up(t, static_cast<double>(c.rank())), s);
          if (c.rank() > 0) c.recv(t, c.rank() - 1, s, "activations");
          d.launch(axpb(t, 1, 5), s);
          if (c.rank() < 2) c.send(t, c.rank() + 1, s, "activations");
          return t;
        }) == std::vector<float>{5, 10, 15});
  CHECK(floats(full(2), 1, [](Backend& d, Allocator& m, Communicator& c, Stream s) {
          const Tensor t = m.allocate({1}, DType::f32, MemoryClass::router, "t");
          d.launch(count_up(t, c.rank() ? NAN : 3.0), s);
          c.all_reduce(t, t, ReduceOp::max, s, "flags");
          return t;
        })[0] != 3.0F);  // a NaN is not lost in a maximum
}

TEST_CASE("all-to-all-v moves every pair's rows") {
  // Rank i sends i + j rows to rank j; each row holds its number in the sender's tensor.
  const auto got = floats(full(3), 9 * 2, [](Backend& d, Allocator& m, Communicator& c, Stream s) {
    const int64_t i = c.rank();
    const Tensor from = m.allocate({9, 2}, DType::f32, MemoryClass::activations, "from");
    const Tensor to = m.allocate({9, 2}, DType::f32, MemoryClass::activations, "to");
    d.launch(count_up(from, 100.0 * static_cast<double>(i)), s);
    d.launch(count_up(to, -1000), s);
    const HostSizes rows = sizes({i, i + 1, i + 2}), begin = sizes({0, i, 2 * i + 1});
    c.all_to_all_v(from, to, rows, begin, rows, begin, s, "dispatch");
    return to;
  });
  std::vector<float> expected;
  for (int64_t j = 0; j < 3; ++j) {
    std::vector<float> rows;
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t begin = j == 0 ? 0 : j == 1 ? i : 2 * i + 1;
      for (int64_t r = 0; r < i + j; ++r)
        for (int64_t k = 0; k < 2; ++k)
          rows.push_back(static_cast<float>(100 * i + 2 * (begin + r) + k));
    }
    for (size_t k = rows.size(); k < 18; ++k) rows.push_back(static_cast<float>(k) - 1000);
    expected.insert(expected.end(), rows.begin(), rows.end());
  }
  CHECK(got == expected);
}

TEST_CASE("sums of 16-bit values are in fp32, of fp64 in fp64, of counts exact") {
  const auto read_back = [](DType dtype) {
    return in_child([=] {
      std::vector<double> sums(4);
      full(4).run([&](Backend& d) {
        Allocator memory(d, true);
        const Stream s = d.stream("comm");
        const auto world = d.communicator(all_ranks(d), "world");
        const Tensor t = memory.allocate({1}, dtype, MemoryClass::gradients, "t");
        const int64_t rank = d.properties().rank;
        // bf16: 256 and three times 1; in bf16 arithmetic 256 + 1 is 256. fp64: 1 + 3e-15.
        const uint16_t bf16 = rank == 0 ? 0x4380 : 0x3f80;
        const double fp64 = rank == 0 ? 1 : 1e-15;
        const int64_t i64 = rank == 0 ? int64_t{1} << 60 : 1;
        const void* value = dtype == DType::bf16  ? static_cast<const void*>(&bf16)
                            : dtype == DType::f64 ? static_cast<const void*>(&fp64)
                                                  : &i64;
        d.write(t, value, s);
        world->all_reduce(t, t, ReduceOp::sum, s, "t");
        std::array<std::byte, 8> bytes{};
        d.read(t, bytes.data(), s);
        double& sum = sums[static_cast<size_t>(rank)];
        if (dtype == DType::bf16) {
          uint32_t wide = 0;
          std::memcpy(reinterpret_cast<char*>(&wide) + 2, bytes.data(), 2);
          float f = 0;
          std::memcpy(&f, &wide, 4);
          sum = static_cast<double>(f);
        } else if (dtype == DType::f64) {
          std::memcpy(&sum, bytes.data(), 8);
        } else {
          int64_t n = 0;
          std::memcpy(&n, bytes.data(), 8);
          sum = static_cast<double>(n - (int64_t{1} << 60));
        }
      });
      return sums;
    });
  };
  CHECK(read_back(DType::bf16) == std::vector<double>(4, 260));  // 259 rounds to even in bf16
  CHECK(read_back(DType::f64) == std::vector<double>(4, 1 + 1e-15 + 1e-15 + 1e-15));
  CHECK(read_back(DType::i64) == std::vector<double>(4, 3));
}

TEST_CASE("memory given back while work still uses it keeps its bytes until then") {
  CHECK(full(1).numbers([](Backend& d) {
    Allocator memory(d, true);
    const Stream s = d.stream("compute");
    const Tensor kept = memory.allocate({1000}, DType::f32, MemoryClass::activations, "k");
    for (int i = 0; i < 200; ++i) {
      const Tensor t = memory.allocate({1000}, DType::f32, MemoryClass::activations, "t");
      d.launch(count_up(t, i), s);
      d.launch(axpb(t, 2, 0), s);
      d.launch(count_up(kept, i), s);
    }  // `t` is dropped at once, long before the work is done
    return static_cast<double>(values_of(d, kept, s)[999]);
  })[0] == 199 + 999);
}

TEST_CASE("arithmetic keeps the order of events that pass over other streams") {
  CHECK(full(1).numbers([](Backend& d) {
    Allocator memory(d, true);
    const Stream a = d.stream("a"), b = d.stream("b"), c = d.stream("c");
    const Tensor t = memory.allocate({4}, DType::f32, MemoryClass::activations, "t");
    const Tensor u = memory.allocate({4}, DType::f32, MemoryClass::activations, "u");
    d.launch(count_up_late(t, 1), a);
    d.launch(count_up_late(u, 2), b);
    d.wait(b, d.record(a));
    d.wait(c, d.record(b));  // b has no work of its own since it waited for a
    d.launch(axpb(t, 10, 0), c);
    d.launch(axpb(u, 100, 0), c);
    return static_cast<double>(values_of(d, t, c)[0] + values_of(d, u, c)[1]);
  })[0] == 10 + 300);
}

TEST_CASE("an error inside arithmetic surfaces at the next wait and keeps its class") {
  for (const int threads : {1, 2}) try {
      in_child([&] {
        full(4, threads).run([](Backend& d) {
          Allocator memory(d, true);
          const Stream s = d.stream("compute");
          const auto world = d.communicator(all_ranks(d), "world");
          const Tensor t = memory.allocate({10}, DType::f32, MemoryClass::activations, "t");
          const int64_t rank = d.properties().rank;
          d.launch(count_up(t, 0), s);
          if (rank == 1) d.launch(explode(t, "NaN on rank 1, first"), s);
          if (rank == 1) d.launch(explode(t, "NaN on rank 1, second"), s);
          if (rank == 3) d.launch(explode(t, "NaN on rank 3"), s);
          world->all_reduce(t, t, ReduceOp::sum, s, "gradients");
          d.synchronize(s);
        });
      });
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::non_finite);
      CHECK(std::string(error.what()) == "NaN on rank 1, first");
    }
}

TEST_CASE("control tensors have storage and run with numerics off, others have none") {
  Case c = full(2);
  c.scenario.training_config.numerics = "none";
  CHECK(c.numbers([](Backend& d) {
    Allocator memory(d, false);
    const Stream s = d.stream("comm");
    const auto world = d.communicator(all_ranks(d), "world");
    const Tensor bulk = memory.allocate({1 << 28}, DType::f32, MemoryClass::activations, "bulk");
    const Tensor counts = memory.allocate({2}, DType::i64, MemoryClass::control, "counts");
    CHECK_FALSE(bulk.has_storage());
    d.launch(count_up(bulk, 0), s);
    d.launch(count_up(counts, static_cast<double>(10 * d.properties().rank)), s);
    world->all_reduce(counts, counts, ReduceOp::sum, s, "counts");
    d.launch(count_up(bulk, 0), s);
    int64_t values[2] = {0, 0};
    d.read(counts, values, s);
    return static_cast<double>(100 * values[0] + values[1]);
  }) == std::vector<double>(2, 1012));
  CHECK_THROWS_WITH(c.numbers([](Backend& d) {
    Allocator memory(d, false);
    const Stream s = d.stream("comm");
    const Tensor bulk = memory.allocate({4}, DType::f32, MemoryClass::activations, "bulk");
    return static_cast<double>(values_of(d, bulk, s)[0]);
  }),
                    Contains("\"bulk\" [4]") && Contains("no storage"));
}

TEST_CASE("threads, runs and context factories change no byte") {
  const auto run = [](int threads, const char* factory) {
    return in_child([=] {
      Case c = full(8, threads);
      c.context_factory = factory;
      std::string bytes;
      std::vector<std::string> by_rank(8);
      c.run([&](Backend& d) {
        Allocator memory(d, true);
        const Stream compute = d.stream("compute"), comm = d.stream("comm");
        const auto world = d.communicator(all_ranks(d), "world");
        Tensor t = memory.allocate({5000}, DType::f32, MemoryClass::activations, "t");
        Tensor sum = memory.allocate({5000}, DType::f32, MemoryClass::gradients, "sum");
        d.launch(count_up(t, 0.1 * static_cast<double>(d.properties().rank)), compute);
        for (int i = 0; i < 20; ++i) {
          d.launch(axpb(t, 0.75, 1e-3 * i), compute);
          d.wait(comm, d.record(compute));
          world->all_reduce(t, sum, ReduceOp::sum, comm, "gradients");
          d.launch(axpb(sum, 1.0 / 3, 0.1), comm);
          d.wait(compute, d.record(comm));
          world->all_reduce(sum, t, ReduceOp::max, compute, "again");
        }
        const auto values = values_of(d, t, compute);
        std::string& mine = by_rank[static_cast<size_t>(d.properties().rank)];
        mine.assign(reinterpret_cast<const char*>(values.data()), 4 * values.size());
        const double end = d.now();
        mine.append(reinterpret_cast<const char*>(&end), sizeof end);
        for (const Interval& i : d.take_profile(true).intervals)
          mine.append(reinterpret_cast<const char*>(&i.start), sizeof i.start);
      });
      for (const auto& b : by_rank) bytes += b;
      return bytes;
    });
  };
  const std::string once = run(1, "");
  CHECK(once.size() > 8 * 20000);
  CHECK(run(1, "") == once);
  CHECK(run(2, "") == once);
  CHECK(run(4, "") == once);
  CHECK(run(2, "thread") == once);
}
