#include "core/base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/base/error.h"

namespace moetwin {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorClass::configuration, fmt::format("data file {}: {}", path, why));
}

std::vector<std::string> glob_matches(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths;
  if (status == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

using FileId = std::pair<dev_t, ino_t>;
FileId file_id(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) refuse(path, std::strerror(errno));
  return {status.st_dev, status.st_ino};
}

bool has_wildcard(const std::string& entry) { return entry.find_first_of("*?[") != entry.npos; }

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) refuse(path, std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  size_ = regular ? status.st_size : 0;
  void* mapped = MAP_FAILED;
  if (size_ > 0)
    mapped = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int why = errno;
  ::close(descriptor);
  if (!regular) refuse(path, "is not a regular file");
  if (size_ == 0) refuse(path, "is empty (0 bytes)");
  if (mapped == MAP_FAILED) refuse(path, std::strerror(why));
  data_ = static_cast<const unsigned char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<unsigned char*>(data_), static_cast<size_t>(size_));
}

std::vector<std::string> expand_files(const std::vector<std::string>& entries,
                                      const std::string& directory, const std::string& key) {
  namespace fs = std::filesystem;
  std::vector<std::string> taken_out;
  for (const std::string& entry : entries)
    if (!entry.empty() && entry[0] == '!') taken_out.push_back(entry.substr(1));

  std::vector<std::string> paths;
  for (const std::string& entry : entries) {
    if (!entry.empty() && entry[0] == '!') continue;
    const std::string full =
        fs::path(entry).is_absolute() ? entry : (fs::path(directory) / entry).string();
    std::vector<std::string> matches;
    // A file whose name holds a wildcard character is still found by its exact name.
    if (fs::exists(full)) {
      if (fs::is_directory(full))
        throw Error(ErrorClass::configuration,
                    fmt::format("{}: \"{}\" is a directory; write \"{}/*\" for the files in it",
                                key, entry, entry));
      matches = {full};
    } else if (has_wildcard(entry)) {
      matches = glob_matches(full);
      std::erase_if(matches, [](const std::string& path) { return fs::is_directory(path); });
    }
    if (matches.empty())
      throw Error(ErrorClass::configuration,
                  fmt::format("{}: \"{}\" {} (looked for {})", key, entry,
                              has_wildcard(entry) ? "matches no file" : "does not exist", full));
    paths.insert(paths.end(), matches.begin(), matches.end());
  }
  // Files are told apart by what they are, not by name: what `!` takes out does not come back by a
  // link to it.
  std::set<FileId> gone, seen;
  for (const std::string& path : paths) {
    const std::string name = fs::path(path).filename().string();
    for (const std::string& pattern : taken_out)
      if (::fnmatch(pattern.c_str(), path.c_str(), 0) == 0 ||
          ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0)
        gone.insert(file_id(path));
  }
  std::sort(paths.begin(), paths.end());
  std::erase_if(paths, [&](const std::string& path) {
    const FileId id = file_id(path);
    return gone.contains(id) || !seen.insert(id).second;
  });
  if (paths.empty())
    throw Error(ErrorClass::configuration,
                fmt::format("{}: {}", key,
                            taken_out.empty() ? "names no file"
                                              : "every file is taken out again by its ! entries"));
  return paths;
}

}  // namespace moetwin
