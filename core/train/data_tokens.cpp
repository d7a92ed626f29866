// Files of token ids: nanoGPT's raw ones and llm.c's with a header.

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/train/data_stream.h"

namespace moetwin {

namespace {

constexpr int64_t kLlmcHeaderBytes = 256 * 4;
constexpr int32_t kMagicU16 = 20240520, kMagicU32 = 20240801;

void append_with_header(TokenStream& stream, std::shared_ptr<const MappedFile> file) {
  const TokenType type = file->at<int32_t>(0) == kMagicU16 ? TokenType::u16 : TokenType::u32;
  const int64_t width = token_type_size(type);
  if (file->size() < kLlmcHeaderBytes)
    refuse_data_file(file->path(),
                     fmt::format("is truncated: {} bytes, but its magic {} promises a header "
                                 "of {} bytes",
                                 file->size(), file->at<int32_t>(0), kLlmcHeaderBytes));
  const int64_t tokens = file->at<int32_t>(8), expected = kLlmcHeaderBytes + tokens * width;
  if (tokens <= 0)
    refuse_data_file(
        file->path(),
        fmt::format("header word 2 at byte offset 8 is {}: the number of tokens must be at "
                    "least 1",
                    tokens));
  if (file->size() != expected)
    refuse_data_file(
        file->path(),
        fmt::format("{}: its header states {} tokens of {} bytes, so the file must have {} "
                    "bytes, but it has {}",
                    file->size() < expected ? "is truncated" : "is too long", tokens, width,
                    expected, file->size()));
  stream.append(std::move(file), kLlmcHeaderBytes, tokens, type);
}

}  // namespace

TokenStream token_stream(const std::vector<std::string>& paths, const std::string& raw_type,
                         int64_t vocab_size) {
  require(raw_type == "uint16" || raw_type == "uint32", "token_dtype is uint16 or uint32");
  const TokenType raw = raw_type == "uint16" ? TokenType::u16 : TokenType::u32;
  TokenStream stream(vocab_size);
  for (const std::string& path : paths) {
    auto file = std::make_shared<MappedFile>(path);
    const int32_t magic = file->size() >= 4 ? file->at<int32_t>(0) : 0;
    if (magic == kMagicU16 || magic == kMagicU32) {
      append_with_header(stream, std::move(file));
      continue;
    }
    const int64_t width = token_type_size(raw), size = file->size();
    if (size % width != 0)
      refuse_data_file(path,
                       fmt::format("has {} bytes, not a multiple of the {} bytes of a {} token "
                                   "(data.token_dtype): truncated, or of another type",
                                   size, width, raw_type));
    stream.append(std::move(file), 0, size / width, raw);
  }
  return stream;
}

}  // namespace moetwin
