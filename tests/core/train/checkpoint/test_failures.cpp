// A save that fails at any operation says so, leaves the checkpoint before it whole, and does not
// stand in the way of the next.

#include <catch2/catch.hpp>
#include <filesystem>

#include "core/base/error.h"
#include "tests/core/train/checkpoint/saved.h"
#include "tests/support/temporary_directory.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

/// The system's, of which operation n fails as on a full disk. Nothing is flushed.
class FailingFiles : public FileOperations {
 public:
  int64_t fail_at = 0, count = 0;
  void make_directory(const std::string& path) override { step(path), real_->make_directory(path); }
  int create(const std::string& path) override { return step(path), real_->create(path); }
  void write(int file, const void* bytes, size_t size, const std::string& path) override {
    step(path), real_->write(file, bytes, size, path);
  }
  void sync(int, const std::string& path) override { step(path); }
  // Closing gives the file back whatever it reports.
  void close(int file, const std::string& path) override { real_->close(file, path), step(path); }
  void rename(const std::string& from, const std::string& to) override {
    step(to), real_->rename(from, to);
  }
  void sync_directory(const std::string& path) override { step(path); }
  void remove(const std::string& path) override { step(path), real_->remove(path); }

 private:
  void step(const std::string& path) {
    if (++count == fail_at)
      throw Error(ErrorClass::fault, "checkpoint: cannot write " + path + ": No space left");
  }
  std::unique_ptr<FileOperations> real_ = system_files();
};

}  // namespace

TEST_CASE("every operation fails once: told, the one before is whole, the next is written",
          "[P157]") {
  for (const char* type : {"sharded", "full"})
    for (const bool async : {false, true}) {
      CAPTURE(type, async);
      int64_t operations = 0;
      for (int64_t n = 1;; ++n) {
        CAPTURE(n);
        const TemporaryDirectory directory;
        const std::string root = directory / "c";
        FailingFiles files;
        CheckpointWriter writer(made_up_setup(root, type, async, 1), files);
        const auto wait = [&] { writer.end_of_run(), writer.end_of_run(); };
        save_made_up(writer, 1);
        wait();
        files.count = 0;
        files.fail_at = n;
        bool failed = false;
        try {
          save_made_up(writer, 2);
          wait();
        } catch (const Error& error) {
          failed = true;
          CHECK(error.error_class() == ErrorClass::fault);
          CHECK_THAT(error.what(), Contains(root) && Contains("No space left"));
        }
        operations = files.count;
        files.fail_at = 0;
        // Whichever is called a checkpoint is one.
        const auto complete = complete_checkpoints(root);
        REQUIRE(!complete.empty());
        for (const auto& [step, path] : complete) CHECK(check_made_up(path) == step);
        save_made_up(writer, 3);
        wait();
        CHECK(check_made_up(find_checkpoint(root, "--resume")) == 3);
        CHECK(complete_checkpoints(root).size() == 1);
        if (!failed) break;
      }
      CHECK(operations > 15);
    }
}

TEST_CASE("a directory that cannot be made or written is named") {
  const TemporaryDirectory directory;
  const auto files = system_files();
  CheckpointWriter writer(made_up_setup(directory.write("file", "x") + "/c", "full", false, 1),
                          *files);
  CHECK_THROWS_WITH(save_made_up(writer, 1), Contains(directory / "file") && Contains("directory"));
}

TEST_CASE("parts of other processes are joined by step; what is no part is told at the end") {
  for (const char* type : {"sharded", "full"}) {
    CAPTURE(type);
    const TemporaryDirectory directory;
    const auto files = system_files();
    CheckpointSetup setup = made_up_setup(directory.path(), type, false, 0);
    setup.local_ranks = 1;
    CheckpointWriter first(setup, *files);
    std::vector<std::string> posts;
    setup.is_first = false;
    setup.post = [&posts](const std::string& bytes) { posts.push_back(bytes); };
    CheckpointWriter second(setup, *files);
    // The other process is one save ahead.
    for (const int64_t step : {1, 2}) second.add(made_up_rank(1, step));
    REQUIRE(posts.size() == 2);
    first.receive(posts[0]);
    first.receive(posts[1]);
    CHECK(complete_checkpoints(directory.path()).empty());
    first.add(made_up_rank(0, 1));
    CHECK(complete_checkpoints(directory.path()).size() == 1);
    first.add(made_up_rank(0, 2));
    first.end_of_run();
    second.end_of_run();
    for (const auto& [step, path] : complete_checkpoints(directory.path()))
      CHECK(check_made_up(path) == step);
    CHECK(complete_checkpoints(directory.path()).size() == 2);
  }
  const TemporaryDirectory directory;
  const auto files = system_files();
  CheckpointSetup setup = made_up_setup(directory.path(), "sharded", false, 0);
  setup.local_ranks = 1;
  setup.timeout_seconds = 0.05;
  CheckpointWriter alone(setup, *files);
  alone.add(made_up_rank(0, 5));
  CHECK_THROWS_WITH(alone.end_of_run(), Contains("step 5") && Contains("1 of 2 ranks"));
  CheckpointWriter odd(setup, *files);
  odd.receive("nonsense");
  CHECK_THROWS_WITH(odd.end_of_run(), Contains("too short"));
}
