#pragma once
// The safetensors format (huggingface/safetensors): eight bytes with the length of a JSON header,
// the header, then the elements of all tensors without a hole, little-endian and row-major.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/files.h"
#include "core/device/tensor.h"

namespace moetwin {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  ///< bytes from the start of the elements
};

/// "F32", "BF16", ...
const char* safetensors_dtype(DType dtype);
/// The other way; false where moetwin has no such type.
bool parse_safetensors_dtype(const std::string& name, DType* dtype);

using SafetensorsMetadata = std::map<std::string, std::string>;

/// Length and header of a file with these tensors in this order; sets their begin and end. The
/// elements then start at a multiple of eight bytes.
std::string safetensors_header(std::vector<SafetensorsEntry>& entries,
                               const SafetensorsMetadata& metadata);

/// A file that was read and found to be whole: every rule of the format holds.
class SafetensorsFile {
 public:
  /// Throws Error(fault) naming the file, the tensor and the rule that does not hold.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  /// Null where there is none of that name.
  const SafetensorsEntry* find(const std::string& name) const;
  const unsigned char* data(const SafetensorsEntry& entry) const {
    return file_.data() + header_bytes_ + entry.begin;
  }
  int64_t header_bytes() const { return header_bytes_; }
  uint32_t header_checksum() const;

 private:
  MappedFile file_;
  int64_t header_bytes_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t> by_name_;
  SafetensorsMetadata metadata_;
};

}  // namespace moetwin
