#include "cli/text_file.h"

#include <fmt/format.h>
#include <json/reader.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "core/base/error.h"

namespace moetwin {

std::string text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file)
    throw Error(ErrorClass::configuration,
                fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  return text.str();
}

Json::Value json_file(const std::string& path) {
  const std::string text = text_file(path);
  const std::unique_ptr<Json::CharReader> reader(Json::CharReaderBuilder().newCharReader());
  Json::Value json;
  std::string errors;
  if (reader->parse(text.data(), text.data() + text.size(), &json, &errors)) return json;
  std::replace(errors.begin(), errors.end(), '\n', ' ');
  throw Error(ErrorClass::configuration, fmt::format("{}: {}", path, errors));
}

}  // namespace moetwin
