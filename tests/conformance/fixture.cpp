#include "tests/conformance/fixture.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

namespace moetwin::conformance {

Values Fixture::values(const char* name) const {
  REQUIRE(tensors.isMember(name));
  Values v;
  for (const Json::Value& x : tensors[name]["data"]) v.push_back(x.asDouble());
  return v;
}

Shape Fixture::shape(const char* name) const {
  REQUIRE(tensors.isMember(name));
  Shape s;
  for (const Json::Value& x : tensors[name]["shape"])
    s.dims[static_cast<size_t>(s.rank++)] = x.asInt64();
  return s;
}

Fixture fixture(const char* name) {
  // A program that is carried to another machine is told where they are there.
  const char* folder = std::getenv("MOETWIN_FIXTURES");
  std::ifstream file(std::string(folder ? folder : MOETWIN_FIXTURES) + "/pytorch.json");
  REQUIRE(file.good());
  Json::Value root;
  file >> root;
  REQUIRE(root["cases"].isMember(name));
  return {root["cases"][name]["attributes"], root["cases"][name]["tensors"]};
}

}  // namespace moetwin::conformance
