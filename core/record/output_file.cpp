#include "core/record/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"

namespace moetwin {

void make_directory(const std::string& path) {
  std::error_code fault;
  std::filesystem::create_directories(path, fault);
  if (fault)
    throw Error(ErrorClass::configuration,
                fmt::format("output directory {}: {}", path, fault.message()));
  if (::access(path.c_str(), W_OK | X_OK) != 0)
    throw Error(ErrorClass::configuration,
                fmt::format("output directory {}: {}", path, std::strerror(errno)));
}

OutputFile::OutputFile(const std::string& path)
    // The process in the name: two runs into one directory do not write into each other.
    : path_(path), temporary_(fmt::format("{}.{}.part", path, ::getpid())) {
  file_ = std::fopen(temporary_.c_str(), "wb");
  if (!file_) fail("cannot be written");
}

OutputFile::~OutputFile() {
  if (!file_) return;
  std::fclose(file_);
  std::remove(temporary_.c_str());
}

void OutputFile::fail(const char* what) const {
  throw Error(ErrorClass::configuration,
              fmt::format("output file {}: {}: {}", path_, what, std::strerror(errno)));
}

void OutputFile::write(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) fail("cannot be written");
}

void OutputFile::commit() {
  const bool written = std::fclose(file_) == 0;
  file_ = nullptr;
  if (!written || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int why = errno;
    std::remove(temporary_.c_str());
    errno = why;
    fail("cannot be written");
  }
}

}  // namespace moetwin
