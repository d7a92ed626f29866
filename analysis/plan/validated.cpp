#include "analysis/plan/validated.h"

#include <fmt/format.h>
#include <json/reader.h>

#include <fstream>

#include "core/base/error.h"

namespace moetwin {

ValidatedError validated_error(const std::vector<std::string>& directories, bool experts) {
  for (const std::string& directory : directories) {
    const std::string path = directory + "/data/validated.json";
    std::ifstream in(path);
    if (!in) continue;
    Json::Value json;
    std::string errors;
    if (!Json::parseFromStream(Json::CharReaderBuilder(), in, &json, &errors) || !json.isObject())
      throw Error(ErrorClass::configuration, path + ": no JSON object");
    const char* kind = experts ? "moe_training" : "dense_training";
    const Json::Value& found = json["kinds"][kind];
    if (!found["median_abs_error"].isNumeric()) return {};
    return {found["median_abs_error"].asDouble(),
            fmt::format("{}, {} published rows of {}", "moetwin validate",
                        found["expressed"].asInt64(), kind)};
  }
  return {};
}

}  // namespace moetwin
