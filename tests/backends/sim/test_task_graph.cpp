// The task graph by itself: order, errors, and that threads change nothing.
#include <atomic>
#include <catch2/catch.hpp>
#include <stdexcept>

#include "backends/sim/runtime/task_graph.h"

using moetwin::TaskGraph;
using moetwin::TaskKey;

namespace {

TaskGraph::Handle add(TaskGraph& graph, TaskKey key, const std::vector<TaskGraph::Handle>& after,
                      std::function<void()> work) {
  TaskGraph::Handle task = graph.open(key);
  for (const auto& a : after) graph.depend(task, a);
  graph.close(task, std::move(work));
  return task;
}

/// 2,000 tasks on 50 values; each reads two values and writes one, ordered by the graph alone.
std::vector<uint64_t> random_program(int threads) {
  TaskGraph graph(threads);
  std::vector<uint64_t> values(50, 1);
  std::vector<TaskGraph::Handle> writer(50);
  std::vector<std::vector<TaskGraph::Handle>> readers(50);
  uint64_t state = 7;
  const auto draw = [&] {
    return static_cast<size_t>((state = state * 6364136223846793005u + 1442695040888963407u) >>
                               33) %
           50;
  };
  for (int64_t i = 0; i < 2000; ++i) {
    const size_t a = draw(), b = draw(), to = draw();
    std::vector<TaskGraph::Handle> after = readers[to];
    after.insert(after.end(), {writer[a], writer[b], writer[to]});
    const auto task = add(graph, {0, i}, after, [&values, a, b, to] {
      values[to] = values[to] * 31 + values[a] * 7 + values[b];
    });
    writer[to] = task;
    readers[to].clear();
    readers[a].push_back(task);
    readers[b].push_back(task);
  }
  graph.join_all();
  return values;
}

}  // namespace

TEST_CASE("a task graph gives the same values on any number of threads") {
  const auto once = random_program(0);
  for (const int threads : {1, 2, 4}) CHECK(random_program(threads) == once);
}

TEST_CASE("an open task holds back what depends on it until it is closed") {
  for (const int threads : {0, 2}) {
    TaskGraph graph(threads);
    std::atomic<int> step{0};
    const auto open = graph.open({0, 1});
    const auto next = add(graph, {0, 2}, {open}, [&] { step = step * 10 + 2; });
    CHECK_FALSE(graph.done(next));
    graph.close(open, [&] { step = 1; });
    graph.join(next);
    CHECK(step == 12);
    CHECK(graph.done(open));
  }
}

TEST_CASE("an error is inherited, the lowest key's is told, what depends on it does not run") {
  for (const int threads : {0, 1, 3}) {
    TaskGraph graph(threads);
    std::atomic<bool> ran{false};
    const auto fails = [](const char* text) { return [text] { throw std::runtime_error(text); }; };
    const auto a = add(graph, {2, 1}, {}, fails("rank 2"));
    const auto b = add(graph, {1, 9}, {}, fails("rank 1, later"));
    const auto c = add(graph, {1, 4}, {}, fails("rank 1"));
    const auto sum = add(graph, {0, 1}, {a, b, c}, [&] { ran = true; });
    const auto beside = add(graph, {0, 2}, {}, [] {});
    CHECK_THROWS_WITH(graph.join(sum), "rank 1");
    CHECK_NOTHROW(graph.join(beside));
    CHECK_THROWS_WITH(graph.join(a), "rank 2");
    CHECK_THROWS_WITH(graph.join_all(), "rank 1");
    CHECK_FALSE(ran);
  }
}

TEST_CASE("stopping drops what has not begun") {
  TaskGraph graph(2);
  const auto never = graph.open({0, 1});
  std::atomic<bool> ran{false};
  add(graph, {0, 2}, {never}, [&] { ran = true; });
  graph.stop();
  CHECK_FALSE(ran);
}
