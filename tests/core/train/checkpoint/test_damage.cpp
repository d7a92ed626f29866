// What is not as it was saved is refused, with file and tensor named.

#include <catch2/catch.hpp>
#include <filesystem>

#include "core/base/error.h"
#include "core/train/checkpoint/checksum.h"
#include "tests/core/train/checkpoint/saved.h"
#include "tests/support/temporary_directory.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

void save(const std::string& directory, const std::string& type, int64_t step) {
  const auto files = system_files();
  CheckpointWriter writer(made_up_setup(directory, type, false, 0), *files);
  save_made_up(writer, step);
}

void overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string refusal(const std::string& directory) {
  try {
    check_made_up(directory);
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::fault);
    return error.what();
  }
  FAIL_CHECK("not refused");
  return "";
}

}  // namespace

TEST_CASE("each flipped bit of each file is found and its place named") {
  for (const char* type : {"sharded", "full"}) {
    const TemporaryDirectory directory;
    save(directory.path(), type, 3);
    const std::string saved = directory / checkpoint_name(3);
    REQUIRE(check_made_up(saved) == 3);
    for (const auto& entry : fs::directory_iterator(saved)) {
      const std::string path = entry.path().string(), good = file_bytes(path);
      const bool manifest = entry.path().filename() == kManifestName;
      for (size_t byte = 0; byte < good.size(); ++byte) {
        std::string bad = good;
        bad[byte] = static_cast<char>(bad[byte] ^ (1 << (byte % 8)));
        overwrite(path, bad);
        const std::string message = refusal(saved);
        if (message.find(path) == std::string::npos ||
            (!manifest && message.find("tensor ") == std::string::npos))
          FAIL_CHECK("byte " << byte << " of " << path << ": " << message);
      }
      overwrite(path, good);
    }
    CHECK(check_made_up(saved) == 3);
  }
}

TEST_CASE("truncated, missing, exchanged and foreign files are refused") {
  for (const char* type : {"sharded", "full"}) {
    const TemporaryDirectory directory;
    save(directory.path(), type, 3);
    save(directory.path(), type, 4);
    const std::string saved = directory / checkpoint_name(3),
                      other = directory / checkpoint_name(4);
    for (const auto& entry : fs::directory_iterator(saved)) {
      const std::string path = entry.path().string(), good = file_bytes(path);
      for (size_t size = 0; size < good.size(); size += 1 + good.size() / 50) {
        overwrite(path, good.substr(0, size));
        CHECK_THAT(refusal(saved), Contains(path));
      }
      if (entry.path().filename() == kManifestName) {
        overwrite(path, good);
        continue;
      }
      fs::remove(path);
      CHECK_THAT(refusal(saved), Contains(path) && Contains("tensor "));
      // The same file of another step: of the same size, whole in itself.
      overwrite(path, file_bytes(other + "/" + entry.path().filename().string()));
      CHECK_THAT(refusal(saved), Contains(path) && Contains("tensor "));
      overwrite(path, good);
    }
    REQUIRE(check_made_up(saved) == 3);
  }
  // Two ranks' files exchanged.
  const TemporaryDirectory directory;
  save(directory.path(), "sharded", 3);
  const std::string saved = directory / checkpoint_name(3);
  const std::string a = saved + "/" + shard_name(0, 2), b = saved + "/" + shard_name(1, 2);
  fs::rename(a, a + "x");
  fs::rename(b, a);
  fs::rename(a + "x", b);
  CHECK_THAT(refusal(saved), Contains(shard_name(0, 2)) && Contains("tensor "));
}

TEST_CASE("a checkpoint of another version is refused as such") {
  const TemporaryDirectory directory;
  save(directory.path(), "full", 3);
  const std::string path = directory / checkpoint_name(3) + "/" + kManifestName;
  std::string text = file_bytes(path);
  const size_t at = text.find("moetwin-checkpoint/1");
  REQUIRE(at != std::string::npos);
  text.replace(at, 20, "moetwin-checkpoint/9");
  const size_t rest = text.find('\n') + 1;
  text.replace(text.find(": \"") + 3, 8, checksum_text(checksum(text.substr(rest))));
  overwrite(path, text);
  try {
    check_made_up(directory / checkpoint_name(3));
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::configuration);
    CHECK_THAT(error.what(), Contains(path) && Contains("moetwin-checkpoint/9") &&
                                 Contains("legal: moetwin-checkpoint/1"));
  }
}

TEST_CASE("a tensor that the model has and the checkpoint has not is named") {
  const TemporaryDirectory directory;
  save(directory.path(), "sharded", 3);
  const Checkpoint checkpoint(directory / checkpoint_name(3));
  float out[64];
  const auto message = [&](const std::string& name, DType dtype, std::array<int64_t, 3> extents) {
    try {
      checkpoint.read(name, dtype, TensorPart::whole(extents), out);
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::configuration);
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  CHECK_THAT(message("gamma", DType::f32, {1, 1, 4}), Contains("no tensor gamma"));
  CHECK_THAT(message("table", DType::f32, {1, 5, 4}),
             Contains("tensor table") && Contains("1 x 6 x 4") && Contains("1 x 5 x 4"));
  CHECK_THAT(message("table", DType::f64, {1, 6, 4}), Contains("tensor table") && Contains("fp64"));
}
