#include "core/scenario/json_members.h"

#include <fmt/format.h>
#include <json/reader.h>

#include <memory>

#include "core/base/error.h"

namespace moetwin {

Json::Value parse_object(const std::string& text, const std::string& name) {
  Json::CharReaderBuilder builder;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value root;
  std::string errors = "no object";
  bool read = false;
  try {
    read = reader->parse(text.data(), text.data() + text.size(), &root, &errors);
  } catch (const Json::Exception& error) {
    errors = error.what();
  }
  if (!read || !root.isObject())
    throw Error(ErrorClass::configuration, fmt::format("{}: no JSON object: {}", name, errors));
  return root;
}

const Json::Value* JsonMembers::at(const std::string& path) const {
  const Json::Value* value = &root_;
  for (size_t begin = 0, dot; begin <= path.size(); begin = dot + 1) {
    dot = std::min(path.find('.', begin), path.size());
    const std::string member = path.substr(begin, dot - begin);
    if (!value->isObject() || !value->isMember(member)) return nullptr;
    value = &(*value)[member];
  }
  return value;
}

const Json::Value& JsonMembers::take(const std::string& path) {
  const Json::Value* value = at(path);
  if (!value) return Json::Value::nullSingleton();
  if (value->isString() && value->asString() == "auto") {
    leave(path, "decided by the program that reads the file");
    return Json::Value::nullSingleton();
  }
  taken_.insert(path);
  return *value;
}

void JsonMembers::take(const std::string& path, const std::string& key) {
  const Json::Value& value = take(path);
  if (!value.isNull()) draft_.set(key, value);
}

std::string JsonMembers::text_of(const std::string& path) const {
  const Json::Value* value = at(path);
  return fmt::format("{}: {} = {}", file_, path, value ? one_line(*value) : "(not given)");
}

void JsonMembers::leave(const std::string& path, const std::string& reason) {
  draft_.leave(text_of(path), reason);
  taken_.insert(path);
}

void JsonMembers::differ(const std::string& path, const std::string& reason) {
  draft_.differ(text_of(path), reason);
  taken_.insert(path);
}

void JsonMembers::leave_rest(const std::string& reason) { leave_rest(root_, "", reason); }

void JsonMembers::leave_rest(const Json::Value& value, const std::string& path,
                             const std::string& reason) {
  for (const std::string& name : value.getMemberNames()) {
    const std::string inner = path.empty() ? name : path + "." + name;
    if (taken_.count(inner)) continue;
    // A section of which something was taken is left by its other members.
    const auto next = taken_.lower_bound(inner + ".");
    const bool part = next != taken_.end() && next->compare(0, inner.size() + 1, inner + ".") == 0;
    if (part && value[name].isObject())
      leave_rest(value[name], inner, reason);
    else
      draft_.leave(fmt::format("{}: {} = {}", file_, inner, one_line(value[name])), reason);
  }
}

}  // namespace moetwin
