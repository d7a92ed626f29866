#pragma once
// Files that training reads: names from globs, bytes through the page cache.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace moetwin {

/// A whole file mapped read-only. Throws Error(configuration) naming the path when it cannot be
/// opened, is no regular file or is empty.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const unsigned char* data() const { return data_; }
  int64_t size() const { return size_; }
  /// The little-endian value at a byte offset; offsets need not be aligned. The caller checks the
  /// range.
  template <class T>
  T at(int64_t offset) const {
    T value;
    __builtin_memcpy(&value, data_ + offset, sizeof value);
    return value;
  }

 private:
  std::string path_;
  const unsigned char* data_ = nullptr;
  int64_t size_ = 0;
};

/// The files that a list of paths and globs names, relative to `directory` unless absolute, in
/// ascending byte order of their paths. An entry that begins with `!` takes matches out again; it
/// is compared with the path and with the file's name. A file that is reached twice, also through a
/// link, counts once. Directories matched by a wildcard are passed over. Throws
/// Error(configuration) naming `key` and the entry when a path does not exist or a glob matches
/// nothing.
std::vector<std::string> expand_files(const std::vector<std::string>& entries,
                                      const std::string& directory, const std::string& key);

}  // namespace moetwin
