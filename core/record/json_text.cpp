#include "core/record/json_text.h"

#include <json/writer.h>

#include <algorithm>
#include <cmath>

#include "core/record/step_row.h"

namespace moetwin {

namespace {

bool plain(const Json::Value& value) { return !value.isObject() && !value.isArray(); }

void write(const Json::Value& value, const std::string& indent, std::string& out) {
  const std::string deeper = indent + "  ";
  if (value.isObject() && !value.empty()) {
    out += "{\n";
    const Json::Value::Members keys = value.getMemberNames();
    for (size_t i = 0; i < keys.size(); ++i) {
      out += deeper + json_string(keys[i]) + ": ";
      write(value[keys[i]], deeper, out);
      out += i + 1 < keys.size() ? ",\n" : "\n";
    }
    out += indent + "}";
  } else if (value.isArray() && !value.empty()) {
    // Rows of numbers on one line: a report has thousands.
    const bool flat = std::all_of(value.begin(), value.end(), plain);
    out += flat ? "[" : "[\n";
    for (Json::ArrayIndex i = 0; i < value.size(); ++i) {
      if (!flat) out += deeper;
      write(value[i], deeper, out);
      if (i + 1 < value.size()) out += flat ? ", " : ",";
      if (!flat) out += "\n";
    }
    out += flat ? "]" : indent + "]";
  } else if (value.type() == Json::realValue) {
    out += std::isfinite(value.asDouble()) ? shortest(value.asDouble()) : "null";
  } else if (value.type() == Json::intValue) {
    out += std::to_string(value.asLargestInt());
  } else if (value.type() == Json::uintValue) {
    out += std::to_string(value.asLargestUInt());
  } else if (value.isString()) {
    out += json_string(value.asString());
  } else {
    Json::StreamWriterBuilder builder;
    builder["indentation"] = "";
    out += Json::writeString(builder, value);
  }
}

}  // namespace

std::string json_string(const std::string& text) { return Json::valueToQuotedString(text.c_str()); }

std::string json_text(const Json::Value& value) {
  std::string out;
  write(value, "", out);
  return out + "\n";
}

}  // namespace moetwin
