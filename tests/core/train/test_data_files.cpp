#include <filesystem>

#include "core/base/files.h"
#include "tests/core/train/data_scenario.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Contains;

TEST_CASE("files come in the order of their paths, each once, without what ! takes out") {
  const TemporaryDirectory dir;
  for (const char* name : {"b", "a", "c.dat", "c"}) dir.write(name, "x");
  std::filesystem::create_symlink("c", dir / "d.u8");
  std::filesystem::create_directory(dir / "folder");
  CHECK(expand_files({"*", "!*.dat"}, dir.path(), "data.files") ==
        std::vector<std::string>{dir / "a", dir / "b", dir / "c"});
  CHECK(expand_files({"*", "!c*"}, dir.path(), "data.files") ==
        std::vector<std::string>{dir / "a", dir / "b"});
  CHECK(expand_files({"b", dir / "a", "b"}, dir.path(), "data.files") ==
        std::vector<std::string>{dir / "a", dir / "b"});
  CHECK(expand_files({"[ab]"}, dir.path(), "data.files").size() == 2);
}

TEST_CASE("what names no file is refused with its key and entry") {
  const TemporaryDirectory dir;
  dir.write("a", "x");
  const auto message = [&](std::vector<std::string> entries) {
    return refusal([&] { expand_files(entries, dir.path(), "data.files"); });
  };
  CHECK_THAT(message({"a", "*.txt"}),
             Contains("data.files: \"*.txt\" matches no file") && Contains(dir / "*.txt"));
  CHECK_THAT(message({"b"}), Contains("data.files: \"b\" does not exist"));
  CHECK_THAT(message({dir.path()}), Contains("is a directory"));
  CHECK_THAT(message({"a", "!a"}), Contains("taken out"));
}

TEST_CASE("a file that cannot be mapped is named") {
  const TemporaryDirectory dir;
  CHECK_THAT(refusal([&] { MappedFile file(dir.write("none", "")); }),
             Contains(dir / "none") && Contains("empty (0 bytes)"));
  CHECK_THAT(refusal([&] { MappedFile file(dir / "absent"); }), Contains(dir / "absent"));
  CHECK_THAT(refusal([&] { MappedFile file(dir.path()); }), Contains("not a regular file"));
}
