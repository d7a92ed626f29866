#include "core/train/checkpoint/file_operations.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"

namespace moetwin {

namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int why) {
  throw Error(ErrorClass::fault,
              fmt::format("checkpoint: {} {}: {}", what, path, std::strerror(why)));
}

class SystemFiles : public FileOperations {
 public:
  void make_directory(const std::string& path) override {
    std::error_code fault;
    std::filesystem::create_directories(path, fault);
    if (fault) fail(path, "cannot make directory", fault.value());
  }
  int create(const std::string& path) override {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) fail(path, "cannot create", errno);
    return file;
  }
  void write(int file, const void* bytes, size_t size, const std::string& path) override {
    const char* at = static_cast<const char*>(bytes);
    while (size > 0) {
      // Linux writes at most 2 GiB at once.
      const ssize_t written = ::write(file, at, std::min<size_t>(size, 1 << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(path, "cannot write", errno);
      at += written;
      size -= static_cast<size_t>(written);
    }
  }
  void sync(int file, const std::string& path) override {
    if (::fsync(file) != 0) fail(path, "cannot flush", errno);
  }
  void close(int file, const std::string& path) override {
    if (::close(file) != 0) fail(path, "cannot close", errno);
  }
  void rename(const std::string& from, const std::string& to) override {
    if (std::rename(from.c_str(), to.c_str()) != 0) fail(to, "cannot rename to", errno);
  }
  void sync_directory(const std::string& path) override {
    const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) fail(path, "cannot open directory", errno);
    const int result = ::fsync(directory), why = errno;
    ::close(directory);
    if (result != 0) fail(path, "cannot flush directory", why);
  }
  void remove(const std::string& path) override {
    if (std::remove(path.c_str()) != 0) fail(path, "cannot remove", errno);
  }
};

}  // namespace

std::unique_ptr<FileOperations> system_files() { return std::make_unique<SystemFiles>(); }

}  // namespace moetwin
