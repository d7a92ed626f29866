#pragma once
// One long row of token ids over any number of files, read where it lies.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/files.h"

namespace moetwin {

/// Throws Error(configuration): "data file PATH: WHY".
[[noreturn]] void refuse_data_file(const std::string& path, const std::string& why);

/// How token ids are stored.
enum class TokenType : uint8_t { u8, i8, i16, u16, i32, u32, i64 };
int64_t token_type_size(TokenType type);

class TokenStream {
 public:
  /// `vocab_size`: ids outside [0, vocab_size) are errors when they are read.
  explicit TokenStream(int64_t vocab_size) : vocab_size_(vocab_size) {}

  /// Appends `count` ids that begin at a byte offset of the file. Stretches that continue the last
  /// one are joined.
  void append(std::shared_ptr<const MappedFile> file, int64_t offset, int64_t count,
              TokenType type);
  /// Appends one id 0 that is in no file.
  void append_separator();

  int64_t size() const { return size_; }
  /// Ids [first, first + count) of the stream, which must be inside. Throws Error(configuration)
  /// with file, byte offset, value and rule at an id that is not in the vocabulary.
  void copy(int64_t first, int64_t count, int32_t* out) const;

 private:
  struct Piece {
    int64_t first;  ///< position in the stream
    int64_t count;
    std::shared_ptr<const MappedFile> file;  ///< null: separators
    int64_t offset;
    TokenType type;
  };
  void copy_piece(const Piece& piece, int64_t begin, int64_t count, int32_t* out) const;

  int64_t vocab_size_;
  int64_t size_ = 0;
  std::vector<Piece> pieces_;
};

/// Text: one byte is one token (vocabulary 256). Between two files stands one id 0, which UTF-8
/// text never contains.
TokenStream text_stream(const std::vector<std::string>& paths, int64_t vocab_size);

/// nanoGPT's raw uint16 (or uint32) files, and llm.c's files with a header of 256 int32 (magic
/// 20240520: uint16, 20240801: uint32; version; number of tokens), told apart by the magic. Files
/// follow each other without a separator, since their writers put one at each document.
TokenStream token_stream(const std::vector<std::string>& paths, const std::string& raw_type,
                         int64_t vocab_size);

/// Megatron's indexed datasets (MMIDIDX version 1). A path is the prefix, the .bin or the .idx
/// file. Sequences follow each other in index order, without a separator.
TokenStream megatron_stream(const std::vector<std::string>& paths, int64_t vocab_size);

}  // namespace moetwin
