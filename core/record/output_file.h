#pragma once
// Files that appear whole or not at all.

#include <cstdio>
#include <string>

namespace moetwin {

/// A file written under a temporary name beside its own until commit(). Throws Error(configuration)
/// naming the path and the reason when it cannot be made, written or renamed.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  /// Takes the temporary file away when commit() was not called.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const std::string& text);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;
  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
};

/// The directory and those above it. Throws Error(configuration) naming the path when it cannot be
/// made or written.
void make_directory(const std::string& path);

}  // namespace moetwin
