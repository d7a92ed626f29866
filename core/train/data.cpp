#include "core/train/data.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "core/base/error.h"
#include "core/train/data_stream.h"

namespace moetwin {

namespace {

/// Stretches of one or two streams, cut into sequences.
class FileSource final : public TokenSource {
 public:
  struct Part {
    std::shared_ptr<const TokenStream> stream;
    int64_t begin = 0, tokens = 0;
  };
  FileSource(Part train, Part validation, int64_t sequence_length, std::string description)
      : parts_{std::move(train), std::move(validation)},
        sequence_length_(sequence_length),
        description_(std::move(description)) {}

  int64_t sequences(Split split) const override {
    const int64_t tokens = part(split).tokens;
    return tokens > 0 ? (tokens - 1) / sequence_length_ : 0;
  }
  void read(Split split, int64_t sequence, int32_t* tokens) const override {
    require(sequence >= 0 && sequence < sequences(split), "sequence number inside the split");
    const Part& from = part(split);
    from.stream->copy(from.begin + sequence * sequence_length_, sequence_length_ + 1, tokens);
  }
  std::string description() const override { return description_; }

 private:
  const Part& part(Split split) const { return parts_[static_cast<int>(split)]; }
  Part parts_[2];
  int64_t sequence_length_;
  std::string description_;
};

std::shared_ptr<const TokenStream> open_stream(const DataConfig& data,
                                               const std::vector<std::string>& paths,
                                               int64_t vocab_size) {
  if (data.format == "text") return std::make_shared<TokenStream>(text_stream(paths, vocab_size));
  if (data.format == "tokens")
    return std::make_shared<TokenStream>(token_stream(paths, data.token_dtype, vocab_size));
  if (data.format == "megatron")
    return std::make_shared<TokenStream>(megatron_stream(paths, vocab_size));
  throw Error(ErrorClass::configuration,
              fmt::format("data.format: \"{}\" is unknown; legal values: text, tokens, megatron, "
                          "synthetic, synthetic_domains",
                          data.format));
}

/// A Megatron prefix names no file itself, so its index stands for it.
std::vector<std::string> paths_of(const DataConfig& data, std::vector<std::string> entries,
                                  const std::string& directory, const std::string& key) {
  namespace fs = std::filesystem;
  if (data.format == "megatron")
    for (std::string& entry : entries) {
      const bool absolute = fs::path(entry).is_absolute();
      const std::string index =
          (absolute ? entry : (fs::path(directory) / entry).string()) + ".idx";
      if (fs::exists(index)) entry += ".idx";
    }
  return expand_files(entries, directory, key);
}

/// Wrong ids in most files show in their first stretch: say so before the first step.
void check_beginning(const TokenStream& stream) {
  std::vector<int32_t> ids(static_cast<size_t>(std::min<int64_t>(stream.size(), 1 << 20)));
  stream.copy(0, static_cast<int64_t>(ids.size()), ids.data());
}

}  // namespace

std::unique_ptr<TokenSource> open_data(const Scenario& scenario) {
  const DataConfig& data = scenario.data;
  const int64_t length = scenario.model_config.sequence_length;
  const int64_t vocab = scenario.model_config.vocab_size;
  const int64_t batch = scenario.training_config.global_batch_size;
  if (data.format == "synthetic")
    return synthetic_data(static_cast<uint64_t>(scenario.training_config.seed), length, vocab);
  if (data.format == "synthetic_domains")
    return synthetic_domain_data(static_cast<uint64_t>(scenario.training_config.seed), length,
                                 vocab);

  if (data.files.empty())
    throw Error(ErrorClass::configuration,
                "data.files: is empty; name at least one file or glob, or set data.format to "
                "\"synthetic\"");
  const std::string directory = std::filesystem::path(scenario.path).parent_path().string();
  const std::vector<std::string> paths = paths_of(data, data.files, directory, "data.files");
  const auto stream = open_stream(data, paths, vocab);
  check_beginning(*stream);
  FileSource::Part train{stream, 0, stream->size()}, validation{stream, stream->size(), 0};
  if (!data.validation_files.empty()) {
    const auto other = open_stream(
        data, paths_of(data, data.validation_files, directory, "data.validation_files"), vocab);
    check_beginning(*other);
    validation = {other, 0, other->size()};
  } else {
    validation.tokens = static_cast<int64_t>(
        std::ceil(data.validation_fraction * static_cast<double>(stream->size())));
    train.tokens = stream->size() - validation.tokens;
    validation.begin = train.tokens;
  }
  auto source = std::make_unique<FileSource>(
      std::move(train), std::move(validation), length,
      fmt::format("{}, {} tokens in {} file{}", data.format, stream->size(), paths.size(),
                  paths.size() == 1 ? "" : "s"));
  if (source->sequences(Split::train) < batch)
    throw Error(
        ErrorClass::configuration,
        fmt::format("data.files: {} tokens, of which the training split has {} sequences of "
                    "model_config.sequence_length = {}, fewer than one step's "
                    "training_config.global_batch_size = {}: needs at least {} tokens",
                    stream->size(), source->sequences(Split::train), length, batch,
                    batch * length + 1));
  return source;
}

}  // namespace moetwin
