#include "core/train/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <tuple>

#include "core/base/error.h"
#include "core/train/checkpoint/checksum.h"

namespace moetwin {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kStepPrefix = "step-";

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw Error(ErrorClass::fault, fmt::format("{}: cannot be read", path));
  return bytes;
}

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw Error(ErrorClass::fault, fmt::format("{}: {}", path, what));
}

bool inside(const TensorPart& part) {
  for (size_t i = 0; i < 3; ++i)
    if (part.offset[i] < 0 || part.local[i] < 1 || part.offset[i] > part.global[i] - part.local[i])
      return false;
  return part.begin >= 0 && part.count >= 0 && part.begin <= part.elements_of_box() - part.count;
}

}  // namespace

Checkpoint::Checkpoint(const std::string& directory) : directory_(directory) {
  const std::string path = directory + "/" + kManifestName;
  manifest_ = parse_manifest(bytes_of(path), path);
  // The first tensor of each file, to name in messages.
  std::map<std::string, std::string> tensor_of;
  for (const auto& [name, tensor] : manifest_.tensors)
    for (const StoredPart& part : tensor.parts) tensor_of.emplace(part.file, name);
  for (const auto& [name, stored] : manifest_.files) {
    const std::string file = directory + "/" + name;
    const std::string holds = fmt::format("which holds tensor {}", tensor_of[name]);
    std::error_code missing;
    const auto bytes = static_cast<int64_t>(fs::file_size(file, missing));
    if (missing) damaged(file, fmt::format("{}: {}", holds, missing.message()));
    if (bytes != stored.bytes)
      damaged(file, fmt::format("{}: {} bytes; the manifest says {}", holds, bytes, stored.bytes));
    try {
      files_.emplace(std::piecewise_construct, std::forward_as_tuple(name),
                     std::forward_as_tuple(file));
    } catch (const Error& error) {
      throw Error(error.error_class(), fmt::format("{} ({})", error.what(), holds));
    }
    if (files_.at(name).header_checksum() != stored.header_checksum)
      damaged(file, fmt::format("{}: its header is not the one the manifest describes: another "
                                "file, or a damaged one",
                                holds));
  }
  check_layout();
}

void Checkpoint::check_layout() const {
  for (const auto& [name, tensor] : manifest_.tensors) {
    int64_t elements = 0;
    for (const StoredPart& part : tensor.parts) {
      const auto file = files_.find(part.file);
      const std::string where = directory_ + "/" + part.file;
      if (file == files_.end())
        damaged(where, fmt::format("tensor {}: no such file in the manifest", name));
      const SafetensorsEntry* entry = file->second.find(part.key);
      if (!entry) damaged(where, fmt::format("tensor {}: not in the file", name));
      if (entry->dtype != tensor.dtype || !inside(part.part) ||
          entry->end - entry->begin != part.part.count * dtype_size(tensor.dtype))
        damaged(where, fmt::format("tensor {}: not of the size or dtype in the manifest", name));
      elements += part.part.count;
    }
    const int64_t whole = TensorPart::whole(tensor.extents).count;
    if (elements != whole)
      damaged(directory_,
              fmt::format("tensor {}: {} of {} elements are there", name, elements, whole));
  }
}

const unsigned char* Checkpoint::verified(const std::string& tensor, const StoredPart& part) const {
  const SafetensorsFile& file = files_.at(part.file);
  const SafetensorsEntry& entry = *file.find(part.key);
  {
    const std::lock_guard lock(mutex_);
    if (checked_.count(&part)) return file.data(entry);
  }
  if (checksum(file.data(entry), static_cast<size_t>(entry.end - entry.begin)) != part.checksum)
    damaged(
        file.path(),
        fmt::format("tensor {}: its bytes do not sum up to the manifest's checksum: damaged, or "
                    "of another checkpoint",
                    tensor));
  const std::lock_guard lock(mutex_);
  checked_[&part] = true;
  return file.data(entry);
}

void Checkpoint::verify() const {
  for (const auto& [name, tensor] : manifest_.tensors)
    for (const StoredPart& part : tensor.parts) verified(name, part);
}

void Checkpoint::read(const std::string& name, DType dtype, const TensorPart& wanted,
                      void* out) const {
  const auto found = manifest_.tensors.find(name);
  if (found == manifest_.tensors.end())
    throw Error(ErrorClass::configuration,
                fmt::format("{}: no tensor {}, which the scenario's model has", directory_, name));
  const StoredTensor& tensor = found->second;
  if (tensor.extents != wanted.global)
    throw Error(
        ErrorClass::configuration,
        fmt::format("{}: tensor {} has extents {}, in the scenario's model {}", directory_, name,
                    fmt::join(tensor.extents, " x "), fmt::join(wanted.global, " x ")));
  if (tensor.dtype != dtype)
    throw Error(ErrorClass::configuration,
                fmt::format("{}: tensor {} is {}, the scenario's training keeps {}; legal dtypes: "
                            "fp64 for fp64, fp32, bf16 or fp16 for the others",
                            directory_, name, dtype_name(tensor.dtype), dtype_name(dtype)));
  int64_t copied = 0;
  for (const StoredPart& part : tensor.parts) {
    TensorPart from = part.part;
    from.global = tensor.extents;
    copied += copy_common(from, verified(name, part), wanted, out, dtype_size(dtype));
  }
  if (copied != wanted.count)
    damaged(directory_ + "/" + kManifestName,
            fmt::format("tensor {}: its parts overlap, or leave elements out", name));
}

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

bool is_checkpoint_name(const std::string& name) {
  const size_t prefix = kStepPrefix.size();
  return name.compare(0, prefix, kStepPrefix) == 0 && name.size() > prefix &&
         name.size() < prefix + 18 &&
         name.find_first_not_of("0123456789", prefix) == std::string::npos;
}

std::map<int64_t, std::string> complete_checkpoints(const std::string& directory) {
  std::map<int64_t, std::string> found;
  std::error_code ignored;
  for (fs::directory_iterator entry(directory, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    std::error_code missing;
    if (is_checkpoint_name(name) && fs::is_regular_file(entry->path() / kManifestName, missing))
      found[std::stoll(name.substr(kStepPrefix.size()))] = entry->path().string();
  }
  return found;
}

std::string find_checkpoint(const std::string& path, const std::string& option) {
  std::error_code ignored;
  if (fs::is_regular_file(fs::path(path) / kManifestName, ignored)) return path;
  for (const std::string& directory : {path, path + "/checkpoints"}) {
    const auto found = complete_checkpoints(directory);
    if (!found.empty()) return found.rbegin()->second;
  }
  throw Error(
      ErrorClass::configuration,
      fmt::format(
          "{} {}: {}; legal: a run directory with complete checkpoints, a directory "
          "of checkpoints, or a checkpoint (a directory with {})",
          option, path,
          fs::is_directory(path, ignored) ? "no complete checkpoint there" : "no such directory",
          kManifestName));
}

}  // namespace moetwin
