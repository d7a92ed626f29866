#pragma once
// What a save asks of the file system: one place to count, to fail or to be killed at, in tests.

#include <cstddef>
#include <memory>
#include <string>

namespace moetwin {

/// Every call throws Error(fault) naming the path and the reason when it does not succeed.
class FileOperations {
 public:
  virtual ~FileOperations() = default;
  /// The directory and those above it; it may be there already.
  virtual void make_directory(const std::string& path) = 0;
  /// An empty file to write to; what was there is cut off.
  virtual int create(const std::string& path) = 0;
  virtual void write(int file, const void* bytes, size_t size, const std::string& path) = 0;
  virtual void sync(int file, const std::string& path) = 0;
  virtual void close(int file, const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// Makes names in a directory durable.
  virtual void sync_directory(const std::string& path) = 0;
  /// A file or an empty directory.
  virtual void remove(const std::string& path) = 0;
};

/// Those of the system.
std::unique_ptr<FileOperations> system_files();

}  // namespace moetwin
