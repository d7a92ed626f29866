// The file format: bytes worked out by hand, and every way in which a file can be no such file.

#include <catch2/catch.hpp>
#include <functional>

#include "core/base/error.h"
#include "core/train/checkpoint/checksum.h"
#include "core/train/checkpoint/safetensors.h"
#include "tests/support/temporary_directory.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

std::string with_length(const std::string& header, const std::string& elements) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + elements;
}

std::string refusal(const std::string& bytes) {
  const TemporaryDirectory directory;
  const std::string path = directory.write("x.safetensors", bytes);
  try {
    const SafetensorsFile file(path);
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::fault);
    CHECK_THAT(error.what(), Contains(path));
    return error.what();
  }
  FAIL("not refused: " << bytes.substr(8));
  return "";
}

}  // namespace

TEST_CASE("the header names tensors with dtype, shape and place; elements begin at 8 bytes") {
  std::vector<SafetensorsEntry> entries(2);
  entries[0].name = "b";
  entries[0].shape = {2, 3};
  entries[1].name = "a\"";
  entries[1].dtype = DType::bf16;
  entries[1].shape = {5};
  const std::string header = safetensors_header(entries, {{"step", "7"}});
  const std::string json =
      R"({"__metadata__":{"step":"7"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("a\"":{"dtype":"BF16","shape":[5],"data_offsets":[24,34]}})";
  REQUIRE(header.size() % 8 == 0);
  CHECK(header.compare(8, json.size(), json) == 0);
  CHECK(header.find_first_not_of(' ', 8 + json.size()) == std::string::npos);
  CHECK(static_cast<unsigned char>(header[0]) == header.size() - 8);

  const TemporaryDirectory directory;
  const SafetensorsFile file(directory.write("x", header + std::string(34, '\1')));
  REQUIRE(file.entries().size() == 2);
  REQUIRE(file.find("a\""));
  CHECK(file.find("a\"")->dtype == DType::bf16);
  CHECK(file.find("a\"")->shape == std::vector<int64_t>{5});
  CHECK(file.find("b")->end == 24);
  CHECK(file.metadata().at("step") == "7");
  CHECK_FALSE(file.find("c"));
}

TEST_CASE("CRC-32 is the one of zlib and Ethernet") {
  CHECK(checksum("123456789", 9) == 0xcbf43926u);  // the check value of the standard
  CHECK(checksum("6789", 4, checksum("12345", 5)) == 0xcbf43926u);
  CHECK(checksum_text(0xabcu) == "00000abc");
}

TEST_CASE("what is no whole safetensors file is refused with file, tensor and rule") {
  const std::string good = R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const TemporaryDirectory directory;
  CHECK(SafetensorsFile(directory.write("good", with_length(good, "12345678"))).entries().size() ==
        1);
  CHECK_THAT(refusal("1234567"), Contains("7 bytes"));
  CHECK_THAT(refusal(with_length(good, "12345678").substr(0, 40)), Contains("header of"));
  CHECK_THAT(refusal(std::string(8, '\xff') + good), Contains("header of"));
  CHECK_THAT(refusal(with_length(good, "1234567")), Contains("tensor t") && Contains("truncated"));
  CHECK_THAT(refusal(with_length(good, "123456789")), Contains("1 bytes behind"));
  CHECK_THAT(refusal(with_length(good + "x", "12345678")), Contains("no JSON"));
  CHECK_THAT(refusal(with_length("[]", "")), Contains("no JSON object"));
  const auto header = [](const std::string& entry) {
    return with_length("{\"t\":" + entry + "}", "12345678");
  };
  CHECK_THAT(refusal(header(R"({"dtype":"F8","shape":[2],"data_offsets":[0,8]})")),
             Contains("tensor t") && Contains("dtype F8") && Contains("BF16"));
  CHECK_THAT(refusal(header(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})")),
             Contains("tensor t") && Contains("0 to 4 for 8 bytes"));
  CHECK_THAT(refusal(header(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})")),
             Contains("extent"));
  CHECK_THAT(
      refusal(header(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]})")),
      Contains("more elements"));
  CHECK_THAT(refusal(header(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})")),
             Contains("tensor t") && Contains("begins at byte 4"));
  CHECK_THAT(refusal(header(R"({"dtype":"F32","shape":[2]})")), Contains("data_offsets"));
  CHECK_THAT(refusal(header("7")), Contains("tensor t"));
  CHECK_THAT(refusal(header(R"({"dtype":"F32","shape":[2],"data_offsets":[0,"8"]})")),
             Contains("data_offset"));
  const std::string both = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  CHECK_THAT(refusal(with_length("{\"t\":" + both + ",\"t\":" + both + "}", "1234")),
             Contains("no JSON"));
  CHECK_THAT(refusal(with_length("{\"t\":" + both + ",\"u\":" + both + "}", "1234")),
             Contains("begins at byte 0, the one before ends at 4"));
  CHECK_THAT(refusal(with_length(R"({"__metadata__":{"a":1}})", "")), Contains("no text"));
}
