#include <catch2/catch.hpp>

#include "tests/cli/run.h"

using namespace moetwin;
using Catch::Matchers::Contains;

TEST_CASE("import writes a scenario that check accepts, and tells what it left out") {
  const Folder folder("import");
  const std::string python = folder.write("mine.py",
                                          "model_config = {'hidden_size': 64, 'secret': 1}\n"
                                          "print(model_config)\n");
  const Ran ran = run({"import", python, "-o", folder.file("mine.json")});
  CHECK(ran.code == 0);
  CHECK(ran.out.empty());
  CHECK_THAT(ran.err, Contains("1 keys taken over, 2 left out") &&
                          Contains("mine.py:1: model_config.secret = 1") &&
                          Contains("mine.py:2: print(model_config)"));
  CHECK(run({"check", folder.file("mine.json")}).code == 0);
  CHECK(run({"import", python}).out == folder.read("mine.json"));
}

TEST_CASE("import ends with 2 where the result is not valid, or nothing can be read") {
  const Folder folder("import-bad");
  const std::string python = folder.write("bad.py", "training_config = {'steps': 0}\n");
  const Ran ran = run({"import", python, "-o", folder.file("bad.json")});
  CHECK(ran.code == 2);
  CHECK_THAT(folder.read("bad.json"), Contains("\"steps\": 0"));
  CHECK_THAT(ran.err, Contains("not valid yet") && Contains("0 must be an integer of at least 1"));
  CHECK(run({"import", folder.file("absent.py")}).code == 2);
  CHECK(run({"import", folder.write("empty.py", "")}).code == 2);
  CHECK(run({"import"}).code == 2);
}
