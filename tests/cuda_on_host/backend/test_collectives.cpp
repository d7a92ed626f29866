// Every collective over NCCL (emulated), between threads and between processes that meet over TCP.
#include <catch2/catch.hpp>
#include <numeric>

#include "core/device/allocator.h"
#include "tests/cuda_on_host/backend/ranks.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

Group everyone(int64_t world) {
  Group g;
  g.n0 = 1;
  g.n1 = world;
  return g;
}

HostSizes sizes(std::vector<int64_t> values) {
  return std::make_shared<const std::vector<int64_t>>(std::move(values));
}

/// One rank with tensors that are filled and read back, and what was wrong in words.
class Desk {
 public:
  explicit Desk(Backend& device)
      : device_(device),
        memory_(device, false),
        stream_(device.stream("test")),
        rank_(device.properties().rank),
        world_(device.properties().world) {}

  template <class T>
  Tensor tensor(const Shape& shape, DType dtype, const std::function<T(int64_t)>& value) {
    Tensor t = memory_.allocate(shape, dtype, MemoryClass::control, "t", stream_);
    std::vector<T> host(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < host.size(); ++i) host[i] = value(static_cast<int64_t>(i));
    device_.write(t, host.data(), stream_);
    return t;
  }
  template <class T>
  void expect(const char* what, const Tensor& t, const std::function<T(int64_t)>& value) {
    std::vector<T> host(static_cast<size_t>(t.elements()));
    device_.read(t, host.data(), stream_);
    for (size_t i = 0; i < host.size(); ++i)
      if (host[i] != value(static_cast<int64_t>(i))) {
        wrong_ += std::string(what) + " at " + std::to_string(i) + " of rank " +
                  std::to_string(rank_) + "; ";
        return;
      }
  }

  Backend& device_;
  Allocator memory_;
  Stream stream_;
  int64_t rank_, world_;
  std::string wrong_;
};

// Rank r holds (r + 1) * (i % 5): exact in every type. Over four ranks the factors sum to 10.
template <class T>
void reductions(Desk& d, Communicator& c, DType dtype) {
  const auto mine = [&](int64_t i) { return static_cast<T>((d.rank_ + 1) * (i % 5)); };
  const int64_t total = d.world_ * (d.world_ + 1) / 2;
  for (const int64_t count : {1, 3, 1001, 70'003}) {
    const Tensor send = d.tensor<T>({count}, dtype, mine);
    const Tensor recv = d.tensor<T>({count}, dtype, [](int64_t) { return T(77); });
    c.all_reduce(send, recv, ReduceOp::sum, d.stream_, "test");
    d.expect<T>("sum", recv, [&](int64_t i) { return static_cast<T>(total * (i % 5)); });
    d.expect<T>("what was sent", send, mine);
    c.all_reduce(recv, recv, ReduceOp::max, d.stream_, "test");  // in place
    d.expect<T>("max", recv, [&](int64_t i) { return static_cast<T>(total * (i % 5)); });
    c.all_reduce(send, recv, ReduceOp::min, d.stream_, "test");
    d.expect<T>("min", recv, [&](int64_t i) { return static_cast<T>(i % 5); });
  }
  const int64_t part = 13;
  const Tensor all = d.tensor<T>({part * d.world_}, dtype, mine);
  Tensor own = d.tensor<T>({part}, dtype, [](int64_t) { return T(77); });
  const auto reduced = [&](int64_t i) {
    return static_cast<T>(total * ((d.rank_ * part + i) % 5));
  };
  c.reduce_scatter(all, own, ReduceOp::sum, d.stream_, "test");
  d.expect<T>("reduce_scatter", own, reduced);
  own = all.rows(d.rank_ * part, part);
  c.reduce_scatter(all, own, ReduceOp::sum, d.stream_, "test");  // into its own part
  d.expect<T>("reduce_scatter in place", own, reduced);
}

void moves(Desk& d, Communicator& c) {
  const int64_t n = d.world_, r = d.rank_;
  const Tensor send = d.tensor<int64_t>({37}, DType::i64, [&](int64_t i) { return 1000 * r + i; });
  const Tensor all = d.tensor<int64_t>({37 * n}, DType::i64, [](int64_t) { return -1; });
  const auto gathered = [](int64_t i) { return 1000 * (i / 37) + i % 37; };
  c.all_gather(send, all, d.stream_, "test");
  d.expect<int64_t>("all_gather", all, gathered);
  const Tensor in_place = d.tensor<int64_t>(
      {37 * n}, DType::i64, [&](int64_t i) { return i / 37 == r ? 1000 * r + i % 37 : -1; });
  c.all_gather(in_place.rows(37 * r, 37), in_place, d.stream_, "test");
  d.expect<int64_t>("all_gather in place", in_place, gathered);

  const Tensor news = d.tensor<int64_t>({5}, DType::i64, [&](int64_t i) { return 10 * r + i; });
  c.broadcast(news, n - 1, d.stream_, "test");
  d.expect<int64_t>("broadcast", news, [&](int64_t i) { return 10 * (n - 1) + i; });

  // Along the line: what rank 0 sends reaches the last one.
  const Tensor passed = d.tensor<int64_t>({3}, DType::i64, [&](int64_t i) { return r ? -1 : i; });
  if (r > 0) c.recv(passed, r - 1, d.stream_, "test");
  if (r + 1 < n) c.send(passed, r + 1, d.stream_, "test");
  d.expect<int64_t>("send and recv", passed, [](int64_t i) { return i; });
  c.barrier(d.stream_);
}

// Rank r sends (3r + 2j) % 5 rows of 7 to rank j, in some pairs none; all to one rank from the same
// first rows.
void all_to_all(Desk& d, Communicator& c, DType dtype) {
  const int64_t n = d.world_, r = d.rank_, width = 7;
  const auto rows = [](int64_t from, int64_t to) { return (3 * from + 2 * to) % 5; };
  std::vector<int64_t> out, out_begin, in, in_begin;
  int64_t received = 0;
  for (int64_t j = 0; j < n; ++j) {
    out.push_back(rows(r, j));
    out_begin.push_back(j % 2);  // several members are sent the same rows
    in.push_back(rows(j, r));
    in_begin.push_back(received);
    received += rows(j, r);
  }
  const Tensor send = d.tensor<float>({6, width}, dtype,
                                      [&](int64_t i) { return static_cast<float>(100 * r + i); });
  const Tensor recv = d.tensor<float>({received + 1, width}, dtype, [](int64_t) { return -1.0F; });
  c.all_to_all_v(send, recv, sizes(out), sizes(out_begin), sizes(in), sizes(in_begin), d.stream_,
                 "test");
  d.expect<float>("all_to_all_v", recv, [&](int64_t i) {
    const int64_t row = i / width;
    for (int64_t j = n - 1; j >= 0; --j)
      if (row >= in_begin[static_cast<size_t>(j)] &&
          row < in_begin[static_cast<size_t>(j)] + in[static_cast<size_t>(j)])
        return static_cast<float>(100 * j + (r % 2) * width +
                                  (row - in_begin[static_cast<size_t>(j)]) * width + i % width);
    return -1.0F;  // behind what was received
  });
}

std::string all_collectives(Backend& device) {
  Desk d(device);
  const auto world = device.communicator(everyone(d.world_), "world");
  reductions<float>(d, *world, DType::f32);
  reductions<double>(d, *world, DType::f64);
  reductions<int64_t>(d, *world, DType::i64);
  reductions<int32_t>(d, *world, DType::i32);
  moves(d, *world);
  all_to_all(d, *world, DType::f32);
  // A second communicator of the same members, and groups of two.
  const auto again = device.communicator(everyone(d.world_), "world");
  all_to_all(d, *again, DType::f32);
  Group pair;
  pair.base = d.rank_ / 2 * 2;
  pair.n1 = 2;
  const auto two = device.communicator(pair, "pair");
  const Tensor ranks = d.tensor<int64_t>({1}, DType::i64, [&](int64_t) { return d.rank_; });
  two->all_reduce(ranks, ranks, ReduceOp::sum, d.stream_, "test");
  d.expect<int64_t>("a group of two", ranks, [&](int64_t) { return 2 * pair.base + 1; });
  return d.wrong_;
}

// 0: a rank that sends nothing; 1: a rank that gets nothing; 2: nobody sends anything.
int64_t sparse_rows(int matrix, int64_t from, int64_t to) {
  if (matrix == 2 || (matrix == 0 && from == 1) || (matrix == 1 && to == 2)) return 0;
  return 1 + (from + to) % 3;
}

std::string many_sparse_rounds(Backend& device, int64_t rounds) {
  Desk d(device);
  const auto world = device.communicator(everyone(d.world_), "world");
  const Tensor send = d.tensor<float>(
      {3}, DType::f32, [&](int64_t i) { return static_cast<float>(10 * d.rank_ + i); });
  const Tensor recv = d.tensor<float>({3 * d.world_}, DType::f32, [](int64_t) { return -1.0F; });
  for (int64_t round = 0; round < rounds; ++round) {
    const int matrix = static_cast<int>(round % 3);
    std::vector<int64_t> out, in, begin;
    for (int64_t j = 0; j < d.world_; ++j) {
      out.push_back(sparse_rows(matrix, d.rank_, j));
      in.push_back(sparse_rows(matrix, j, d.rank_));
      begin.push_back(3 * j);
    }
    const HostSizes from_start = sizes(std::vector<int64_t>(static_cast<size_t>(d.world_), 0));
    world->all_to_all_v(send, recv, sizes(out), from_start, sizes(in), sizes(begin), d.stream_,
                        "test");
  }
  d.expect<float>("after all rounds", recv, [&](int64_t i) {
    for (const int matrix : {0, 1})
      if (i % 3 < sparse_rows(matrix, i / 3, d.rank_))
        return static_cast<float>(10 * (i / 3) + i % 3);
    return -1.0F;
  });
  if (world->calls() != static_cast<uint64_t>(rounds)) d.wrong_ += "calls were not counted";
  return d.wrong_;
}

void check(const std::vector<Ended>& ended, size_t ranks) {
  REQUIRE(ended.size() == ranks);
  for (const Ended& e : ended) {
    CHECK(e.text == "");
    CHECK(e.exit_code == 0);
  }
}

}  // namespace

TEST_CASE("all collectives between four threads, with odd sizes and no rows") {
  check(as_threads(world_of(4), all_collectives), 4);
}

TEST_CASE("all collectives between four processes over TCP") {
  check(as_processes(world_of(4), all_collectives), 4);
}

TEST_CASE("all collectives with every call compared before it starts") {
  Scenario s = world_of(4);
  s.distributed_config.check_collectives = true;
  check(as_processes(s, all_collectives), 4);
}

TEST_CASE("exchanges with an idle rank, an idle receiver and nobody", "[P030]") {
  check(as_threads(world_of(4), [](Backend& b) { return many_sparse_rounds(b, 300); }), 4);
}

TEST_CASE("5,000 sparse exchanges", "[P030][.slow]") {
  check(as_threads(world_of(4), [](Backend& b) { return many_sparse_rounds(b, 5000); }), 4);
}
