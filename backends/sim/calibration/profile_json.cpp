#include "backends/sim/calibration/profile_json.h"

#include <json/reader.h>

#include <memory>
#include <sstream>

#include "core/base/error.h"
#include "core/record/json_text.h"

namespace moetwin {

std::string profile_text(const std::string& base_text, const std::string& description,
                         const std::string& name, const std::vector<FittedFigure>& figures) {
  Json::CharReaderBuilder builder;
  builder["collectComments"] = false;
  builder["allowTrailingCommas"] = true;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value json;
  std::string errors;
  require(reader->parse(base_text.data(), base_text.data() + base_text.size(), &json, &errors),
          "the base profile was read before");
  json["description"] = description;
  json.removeMember("corrections");  // of the base's times, which these figures replace
  if (!name.empty()) json["gpu"]["name"] = name;
  for (const FittedFigure& figure : figures) {
    Json::Value* at = &json;
    std::istringstream parts(figure.key);
    for (std::string part; std::getline(parts, part, '.');) at = &(*at)[part];
    *at = Json::Value(Json::objectValue);
    (*at)["value"] = figure.value;
    (*at)["source"] = figure.source;
  }
  return json_text(json);
}

}  // namespace moetwin
