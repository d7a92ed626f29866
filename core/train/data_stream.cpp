#include "core/train/data_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"

namespace moetwin {

void refuse_data_file(const std::string& path, const std::string& why) {
  throw Error(ErrorClass::configuration, fmt::format("data file {}: {}", path, why));
}

int64_t token_type_size(TokenType type) {
  constexpr int64_t kSizes[] = {1, 1, 2, 2, 4, 4, 8};
  return kSizes[static_cast<int>(type)];
}

namespace {

/// Index of the first id outside [0, vocab), or -1 with every id copied.
template <class Stored>
int64_t copy_ids(const unsigned char* from, int64_t count, int64_t vocab, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    Stored id;
    __builtin_memcpy(&id, from + i * static_cast<int64_t>(sizeof id), sizeof id);
    if (static_cast<int64_t>(id) < 0 || static_cast<int64_t>(id) >= vocab) return i;
    out[i] = static_cast<int32_t>(id);
  }
  return -1;
}

int64_t copy_ids(TokenType type, const unsigned char* from, int64_t count, int64_t vocab,
                 int32_t* out) {
  switch (type) {
    case TokenType::u8:
      return copy_ids<uint8_t>(from, count, vocab, out);
    case TokenType::i8:
      return copy_ids<int8_t>(from, count, vocab, out);
    case TokenType::i16:
      return copy_ids<int16_t>(from, count, vocab, out);
    case TokenType::u16:
      return copy_ids<uint16_t>(from, count, vocab, out);
    case TokenType::i32:
      return copy_ids<int32_t>(from, count, vocab, out);
    case TokenType::u32:
      return copy_ids<uint32_t>(from, count, vocab, out);
    case TokenType::i64:
      return copy_ids<int64_t>(from, count, vocab, out);
  }
  return 0;
}

int64_t id_at(TokenType type, const MappedFile& file, int64_t offset) {
  switch (type) {
    case TokenType::u8:
      return file.at<uint8_t>(offset);
    case TokenType::i8:
      return file.at<int8_t>(offset);
    case TokenType::i16:
      return file.at<int16_t>(offset);
    case TokenType::u16:
      return file.at<uint16_t>(offset);
    case TokenType::i32:
      return file.at<int32_t>(offset);
    case TokenType::u32:
      return file.at<uint32_t>(offset);
    case TokenType::i64:
      return file.at<int64_t>(offset);
  }
  return 0;
}

}  // namespace

void TokenStream::append(std::shared_ptr<const MappedFile> file, int64_t offset, int64_t count,
                         TokenType type) {
  if (count == 0) return;
  if (!pieces_.empty()) {
    Piece& last = pieces_.back();
    if (last.file == file && last.type == type &&
        last.offset + last.count * token_type_size(type) == offset) {
      last.count += count;
      size_ += count;
      return;
    }
  }
  pieces_.push_back({size_, count, std::move(file), offset, type});
  size_ += count;
}

void TokenStream::append_separator() {
  pieces_.push_back({size_, 1, nullptr, 0, TokenType::u8});
  ++size_;
}

void TokenStream::copy_piece(const Piece& piece, int64_t begin, int64_t count, int32_t* out) const {
  if (!piece.file) {
    std::fill_n(out, count, 0);
    return;
  }
  const int64_t width = token_type_size(piece.type), offset = piece.offset + begin * width;
  const int64_t bad = copy_ids(piece.type, piece.file->data() + offset, count, vocab_size_, out);
  if (bad < 0) return;
  const int64_t at = offset + bad * width;
  throw Error(ErrorClass::configuration,
              fmt::format("data file {}: token id {} at byte offset {} is not in the vocabulary: "
                          "ids must be at least 0 and below model_config.vocab_size = {}",
                          piece.file->path(), id_at(piece.type, *piece.file, at), at, vocab_size_));
}

void TokenStream::copy(int64_t first, int64_t count, int32_t* out) const {
  require(first >= 0 && count >= 0 && first + count <= size_, "token range inside the stream");
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), first,
                                [](int64_t at, const Piece& p) { return at < p.first; });
  if (piece != pieces_.begin()) --piece;
  while (count > 0) {
    const int64_t begin = first - piece->first, part = std::min(count, piece->count - begin);
    copy_piece(*piece, begin, part, out);
    first += part, count -= part, out += part, ++piece;
  }
}

TokenStream text_stream(const std::vector<std::string>& paths, int64_t vocab_size) {
  TokenStream stream(vocab_size);
  for (const std::string& path : paths) {
    auto file = std::make_shared<MappedFile>(path);
    if (stream.size() > 0) stream.append_separator();
    const int64_t size = file->size();
    stream.append(std::move(file), 0, size, TokenType::u8);
  }
  return stream;
}

}  // namespace moetwin
