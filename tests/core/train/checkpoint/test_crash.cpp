// A save that dies at any moment leaves a whole checkpoint behind: killed at every operation, and
// with the power lost at every operation, when only what was flushed is there.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <set>

#include "core/base/error.h"
#include "tests/core/train/checkpoint/saved.h"
#include "tests/support/temporary_directory.h"

using namespace moetwin;
using namespace moetwin::test;
namespace fs = std::filesystem;

namespace {

/// The system's, with something done before each operation. Flushing is left out: it makes no
/// difference to what a killed process leaves.
class WatchedFiles : public FileOperations {
 public:
  explicit WatchedFiles(std::function<void()> before) : before_(std::move(before)) {}
  void make_directory(const std::string& path) override { before_(), real_->make_directory(path); }
  int create(const std::string& path) override { return before_(), real_->create(path); }
  void write(int file, const void* bytes, size_t size, const std::string& path) override {
    // Half of it may be there.
    before_();
    real_->write(file, bytes, size / 2, path);
    before_();
    real_->write(file, static_cast<const char*>(bytes) + size / 2, size - size / 2, path);
  }
  void sync(int, const std::string&) override { before_(); }
  void close(int file, const std::string& path) override { before_(), real_->close(file, path); }
  void rename(const std::string& from, const std::string& to) override {
    before_(), real_->rename(from, to);
  }
  void sync_directory(const std::string&) override { before_(); }
  void remove(const std::string& path) override { before_(), real_->remove(path); }

 private:
  std::function<void()> before_;
  std::unique_ptr<FileOperations> real_ = system_files();
};

constexpr int64_t kSteps = 3;

/// Saves kSteps times in a child that kills itself at operation n; false: it came to its end.
bool killed_at(int64_t n, const CheckpointSetup& setup) {
  const pid_t child = ::fork();
  if (child == 0) {
    int64_t count = 0;
    WatchedFiles files([&] {
      if (++count == n) ::kill(::getpid(), SIGKILL);
    });
    CheckpointWriter writer(setup, files);
    for (int64_t step = 1; step <= kSteps; ++step) save_made_up(writer, step);
    writer.end_of_run();
    writer.end_of_run();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) {
    REQUIRE(WTERMSIG(status) == SIGKILL);
    return true;
  }
  REQUIRE(WEXITSTATUS(status) == 0);
  return false;
}

}  // namespace

TEST_CASE("killed at every operation of three saves: the newest checkpoint loads", "[P153][P159]") {
  for (const char* type : {"sharded", "full"})
    for (const bool async : {false, true})
      for (const int64_t keep : {1, 2}) {
        CAPTURE(type, async, keep);
        std::set<int64_t> newest;
        int64_t n = 1, last = 0;
        for (;; ++n) {
          CAPTURE(n);
          const TemporaryDirectory directory;
          const CheckpointSetup setup = made_up_setup(directory / "c", type, async, keep);
          const bool killed = killed_at(n, setup);
          const auto complete = complete_checkpoints(setup.directory);
          const int64_t step = complete.empty() ? 0 : complete.rbegin()->first;
          // All that is called a checkpoint is one, and what was once there stays.
          for (const auto& [of, path] : complete) CHECK(check_made_up(path) == of);
          CHECK(step >= last);
          last = step;
          newest.insert(step);
          // The next run saves over what is left, and tidies up.
          WatchedFiles files([] {});
          CheckpointWriter writer(setup, files);
          writer.check_start(step);
          save_made_up(writer, 9);
          writer.end_of_run();
          writer.end_of_run();
          CHECK(check_made_up(find_checkpoint(directory.path() + "/c", "--resume")) == 9);
          int64_t entries = 0;
          for (const auto& entry : fs::directory_iterator(setup.directory)) {
            CHECK(fs::exists(entry.path() / kManifestName));
            ++entries;
          }
          CHECK(entries <= keep);
          if (!killed) break;
        }
        CHECK(newest == std::set<int64_t>{0, 1, 2, 3});
        CHECK(n > 60);
      }
}

namespace {

/// What a disk has: contents as they were last flushed, names as their directory was.
class Disk : public FileOperations {
 public:
  explicit Disk(std::function<void()> after) : after_(std::move(after)) {}
  void make_directory(const std::string& path) override {
    real_->make_directory(path);
    names_[parent(path)].insert(path);
    after_();
  }
  int create(const std::string& path) override {
    const int file = real_->create(path);
    names_[parent(path)].insert(path);
    content_[path] = flushed_[path] = "";
    after_();
    return file;
  }
  void write(int file, const void* bytes, size_t size, const std::string& path) override {
    real_->write(file, bytes, size, path);
    content_[path].append(static_cast<const char*>(bytes), size);
    after_();
  }
  void sync(int, const std::string& path) override {
    flushed_[path] = content_[path];
    after_();
  }
  void close(int file, const std::string& path) override { real_->close(file, path); }
  void rename(const std::string& from, const std::string& to) override {
    real_->rename(from, to);
    names_[parent(from)].erase(from);
    names_[parent(to)].insert(to);
    content_[to] = content_[from];
    flushed_[to] = flushed_[from];
    after_();
  }
  void sync_directory(const std::string& path) override {
    flushed_names_[path] = names_[path];
    after_();
  }
  void remove(const std::string& path) override {
    real_->remove(path);
    names_[parent(path)].erase(path);
    after_();
  }

  /// What is there after the power was lost: flushed contents under the names as they were last
  /// flushed, or under all names given so far (a file system may be ahead with either).
  void after_power_loss(const std::string& root, const std::string& into, bool all_names) const {
    const auto& names = all_names ? names_ : flushed_names_;
    const auto top = names.find(root);
    if (top == names.end()) return;
    for (const std::string& directory : top->second) {
      const std::string copy = into + directory.substr(root.size());
      fs::create_directories(copy);
      const auto inside = names.find(directory);
      if (inside == names.end()) continue;
      for (const std::string& path : inside->second)
        std::ofstream(copy + path.substr(directory.size()), std::ios::binary) << flushed_.at(path);
    }
  }

 private:
  static std::string parent(const std::string& path) { return fs::path(path).parent_path(); }
  std::function<void()> after_;
  std::unique_ptr<FileOperations> real_ = system_files();
  std::map<std::string, std::set<std::string>> names_, flushed_names_;
  std::map<std::string, std::string> content_, flushed_;
};

}  // namespace

TEST_CASE("the power lost after every operation of three saves: the newest checkpoint loads",
          "[P153]") {
  for (const char* type : {"sharded", "full"})
    for (const int64_t keep : {1, 2})
      for (const bool all_names : {false, true}) {
        CAPTURE(type, keep, all_names);
        const TemporaryDirectory directory;
        const std::string root = directory / "c";
        std::set<int64_t> newest;
        int64_t operations = 0, last = 0;
        const Disk* disk = nullptr;
        Disk files([&] {
          ++operations;
          const TemporaryDirectory copy;
          disk->after_power_loss(root, copy.path(), all_names);
          const auto complete = complete_checkpoints(copy.path());
          // Names that are ahead may show an older checkpoint that was half removed.
          const int64_t step = complete.empty() ? 0 : check_made_up(complete.rbegin()->second);
          CHECK(step >= last);
          last = step;
          newest.insert(step);
        });
        disk = &files;
        CheckpointWriter writer(made_up_setup(root, type, false, keep), files);
        for (int64_t step = 1; step <= kSteps; ++step) save_made_up(writer, step);
        CHECK(newest == std::set<int64_t>{0, 1, 2, 3});
        CHECK(operations > 40);
      }
}
