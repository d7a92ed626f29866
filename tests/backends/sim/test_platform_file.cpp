// SimGrid platform files that a user brings: what they say is what the model has, and what cannot
// be read is refused.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "backends/sim/runtime/platform_file.h"
#include "core/base/error.h"

using namespace moetwin;

namespace {

/// Hosts, links of so many MB/s, and links of the way between two hosts, both ways.
struct Written {
  size_t hosts = 0;
  std::vector<int> links;
  std::map<std::pair<size_t, size_t>, std::vector<size_t>> routes;
  std::string text() const {
    std::string all =
        "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM "
        "\"https://simgrid.org/simgrid.dtd\">\n<platform version=\"4.1\">\n"
        "<zone id=\"all\" routing=\"Full\">\n";
    for (size_t h = 0; h < hosts; ++h) all += fmt::format("<host id=\"h{}\" speed=\"1Gf\"/>\n", h);
    for (size_t l = 0; l < links.size(); ++l)
      all += fmt::format("<link id=\"l{}\" bandwidth=\"{}MBps\" latency=\"1us\"/>\n", l, links[l]);
    for (const auto& [ends, way] : routes) {
      all += fmt::format("<route src=\"h{}\" dst=\"h{}\">", ends.first, ends.second);
      for (const size_t l : way) all += fmt::format("<link_ctn id=\"l{}\"/>", l);
      all += "</route>\n";
    }
    return all + "</zone>\n</platform>\n";
  }
};

Written random_platform(std::mt19937_64& random) {
  Written w;
  w.hosts = 2 + random() % 5;
  w.links.resize(1 + random() % 8);
  for (int& speed : w.links) speed = static_cast<int>(1 + random() % 1000);
  for (size_t a = 0; a < w.hosts; ++a)
    for (size_t b = a + 1; b < w.hosts; ++b) {
      auto& way = w.routes[{a, b}];
      for (size_t l = 0; l < w.links.size(); ++l)
        if (random() % 2) way.push_back(l);
      if (way.empty()) way.push_back(random() % w.links.size());
      std::shuffle(way.begin(), way.end(), random);
    }
  return w;
}

class File {
 public:
  File() {
    std::string pattern = (std::filesystem::temp_directory_path() / "moetwin-file-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~File() { std::filesystem::remove_all(folder_); }
  std::string with(const std::string& text) const {
    std::ofstream(path()) << text;
    return path();
  }
  std::string path() const { return folder_ + "/platform.xml"; }

 private:
  std::string folder_;
};

}  // namespace

TEST_CASE("routes of several links are read as they are written", "[P222]") {
  std::mt19937_64 random(222);
  const File file;
  for (int i = 0; i < 100; ++i) {
    const Written w = random_platform(random);
    const auto table = read_platform_file(file.with(w.text()), static_cast<int64_t>(w.hosts));
    INFO(w.text());
    REQUIRE(table->hosts == static_cast<int64_t>(w.hosts));
    for (const auto& [ends, way] : w.routes)
      for (const bool back : {false, true}) {
        const auto [a, b] = back ? std::pair(ends.second, ends.first) : ends;
        std::vector<std::string> got, wanted;
        for (const int32_t link : table->routes[a * w.hosts + b]) {
          const auto l = static_cast<size_t>(link);
          got.push_back(table->names[l]);
          const auto number = static_cast<size_t>(std::stoul(table->names[l].substr(1)));
          CHECK(table->bandwidth[l] == Approx(1e6 * w.links[number]));
        }
        for (const size_t l : way) wanted.push_back(fmt::format("l{}", l));
        std::sort(got.begin(), got.end()), std::sort(wanted.begin(), wanted.end());
        CHECK(got == wanted);
      }
  }
}

TEST_CASE("files with a part that is wrong are read or refused, and nothing crashes", "[P222]") {
  std::mt19937_64 random(2220);
  const File file;
  int refused = 0;
  for (int i = 0; i < 100; ++i) {
    const Written w = random_platform(random);
    std::string text = w.text();
    for (int changes = 0; changes < 3; ++changes)
      text[random() % text.size()] = static_cast<char>(32 + random() % 95);
    try {
      const int64_t hosts = read_platform_file(file.with(text), 1)->hosts;
      CHECK(hosts >= 1);
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::configuration);
      CHECK_THAT(error.what(), Catch::Matchers::Contains(file.path()));
      ++refused;
    }
  }
  CHECK(refused > 50);
}
