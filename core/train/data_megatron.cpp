// Megatron's indexed datasets. The index is: magic, version u64, type code u8, sequences n u64,
// document marks d u64, n lengths i32, n byte offsets i64, d sequence numbers i64 (0, end of the
// first document, ..., n).

#include <fmt/format.h>

#include <cstring>

#include "core/base/error.h"
#include "core/train/data_stream.h"

namespace moetwin {

namespace {

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr int64_t kIndexHeaderBytes = 34;

TokenType type_of_code(int code, const std::string& path) {
  switch (code) {
    case 1:
      return TokenType::u8;
    case 2:
      return TokenType::i8;
    case 3:
      return TokenType::i16;
    case 4:
      return TokenType::i32;
    case 5:
      return TokenType::i64;
    case 8:
      return TokenType::u16;
    default:
      refuse_data_file(path,
                       fmt::format("type code {} at byte offset 17 is no integer type: legal are 1 "
                                   "(uint8), 2 (int8), 3 (int16), 4 (int32), 5 (int64), 8 (uint16)",
                                   code));
  }
}

std::string without_suffix(const std::string& path) {
  for (const char* suffix : {".bin", ".idx"})
    if (path.ends_with(suffix)) return path.substr(0, path.size() - 4);
  return path;
}

void append_dataset(TokenStream& stream, const std::string& prefix) {
  const MappedFile index(prefix + ".idx");
  const std::string& path = index.path();
  if (index.size() < kIndexHeaderBytes)
    refuse_data_file(path, fmt::format("is truncated: {} bytes, the header alone has {}",
                                       index.size(), kIndexHeaderBytes));
  if (std::memcmp(index.data(), kMagic, sizeof kMagic) != 0)
    refuse_data_file(path, "does not begin with MMIDIDX: no index of Megatron");
  if (index.at<uint64_t>(9) != 1)
    refuse_data_file(path, fmt::format("version {} at byte offset 9: only version 1 is known",
                                       index.at<uint64_t>(9)));
  const TokenType type = type_of_code(index.at<uint8_t>(17), path);
  const int64_t n = index.at<int64_t>(18), d = index.at<int64_t>(26);
  // Divided, not multiplied: a corrupt count must not overflow the check.
  if (n < 0 || d < 0 || n > index.size() / 12 || d > index.size() / 8 ||
      index.size() < kIndexHeaderBytes + 12 * n + 8 * d)
    refuse_data_file(
        path, fmt::format("is truncated: {} sequences and {} document marks do not fit into {} "
                          "bytes",
                          n, d, index.size()));
  const int64_t lengths = kIndexHeaderBytes, offsets = lengths + 4 * n, documents = offsets + 8 * n;
  if (d > 0 &&
      (index.at<int64_t>(documents) != 0 || index.at<int64_t>(documents + 8 * (d - 1)) != n))
    refuse_data_file(
        path, fmt::format("document marks go from {} to {} (byte offset {}), but must go from "
                          "0 to the {} sequences",
                          index.at<int64_t>(documents), index.at<int64_t>(documents + 8 * (d - 1)),
                          documents, n));
  const auto file = std::make_shared<MappedFile>(prefix + ".bin");
  const int64_t width = token_type_size(type);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t length = index.at<int32_t>(lengths + 4 * i);
    const int64_t offset = index.at<int64_t>(offsets + 8 * i);
    if (length < 0 || offset < 0 || offset > file->size() ||
        length > (file->size() - offset) / width)
      refuse_data_file(
          path, fmt::format("sequence {} (byte offset {}) is {} tokens of {} bytes at {}, but "
                            "{} has only {} bytes",
                            i, lengths + 4 * i, length, width, offset, file->path(), file->size()));
    stream.append(file, offset, length, type);
  }
}

}  // namespace

TokenStream megatron_stream(const std::vector<std::string>& paths, int64_t vocab_size) {
  TokenStream stream(vocab_size);
  std::string last;
  for (const std::string& path : paths) {
    const std::string prefix = without_suffix(path);
    // A glob may match x.bin and x.idx: one dataset.
    if (prefix != last) append_dataset(stream, prefix);
    last = prefix;
  }
  return stream;
}

}  // namespace moetwin
