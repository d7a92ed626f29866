#include "core/scenario/source.h"

#include <fmt/format.h>
#include <json/reader.h>
#include <json/writer.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "core/base/error.h"

namespace moetwin {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<Json::CharReader> make_reader() {
  Json::CharReaderBuilder builder;
  builder["collectComments"] = false;
  builder["allowComments"] = true;
  builder["allowTrailingCommas"] = true;
  builder["rejectDupKeys"] = true;
  builder["failIfExtra"] = true;
  builder["strictRoot"] = false;
  builder["skipBom"] = true;
  builder["stackLimit"] = 100;  // deeper nesting than any scenario has
  return std::unique_ptr<Json::CharReader>(builder.newCharReader());
}

// JsonCpp reports "* Line 3, Column 5\n  message\nSee Line 4, Column 1 for detail.\n" per error.
std::string rewrite_errors(const std::string& errors, const std::string& name) {
  std::istringstream lines(errors);
  std::string line, text;
  while (std::getline(lines, line)) {
    int row = 0, column = 0;
    if (std::sscanf(line.c_str(), "* Line %d, Column %d", &row, &column) == 2) {
      text += fmt::format("{}{}:{}:{}:", text.empty() ? "" : "\n", name, row, column);
    } else if (const size_t start = line.find_first_not_of(' '); start != std::string::npos) {
      text += " " + line.substr(start);
    }
  }
  return text;
}

class LineFinder {
 public:
  explicit LineFinder(const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n') ends_.push_back(i);
  }
  size_t line(ptrdiff_t offset) const {
    return std::lower_bound(ends_.begin(), ends_.end(), static_cast<size_t>(offset)) -
           ends_.begin() + 1;
  }

 private:
  std::vector<size_t> ends_;
};

void note_places(const Json::Value& value, const std::string& path, const std::string& name,
                 const LineFinder& lines, Places* places) {
  if (!path.empty())
    (*places)[path] = fmt::format("{}:{}", name, lines.line(value.getOffsetStart()));
  if (value.isObject()) {
    for (const std::string& member : value.getMemberNames())
      note_places(value[member], path.empty() ? member : path + "." + member, name, lines, places);
  } else if (value.isArray()) {
    for (Json::ArrayIndex i = 0; i < value.size(); ++i)
      note_places(value[i], fmt::format("{}[{}]", path, i), name, lines, places);
  }
}

// A value that replaces another takes that one's places with it.
void forget_places(const std::string& path, Places* places) {
  std::erase_if(*places, [&](const auto& entry) {
    return entry.first == path || entry.first.compare(0, path.size() + 1, path + ".") == 0 ||
           entry.first.compare(0, path.size() + 1, path + "[") == 0;
  });
}

void merge(const Json::Value& from, const std::string& path, Json::Value* into, Places* places) {
  for (const std::string& member : from.getMemberNames()) {
    const std::string at = path.empty() ? member : path + "." + member;
    Json::Value& target = (*into)[member];
    if (from[member].isObject() && target.isObject()) {
      merge(from[member], at, &target, places);
    } else {
      forget_places(at, places);
      target = from[member];
    }
  }
}

// The value at a dotted path, or null where the tree has none.
Json::Value* find(Json::Value* root, const std::string& path) {
  Json::Value* at = root;
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    if (!at->isObject() || !at->isMember(part)) return nullptr;
    at = &(*at)[part];
  }
  return at;
}

// File names of a base file mean its own directory; rewrite them to start at `prefix`.
void move_files(const KeyTable& table, const fs::path& prefix, Json::Value* root) {
  if (prefix == "." || prefix.empty()) return;
  const auto move = [&](Json::Value* value) {
    if (value->isString() && !value->asString().empty() &&
        fs::path(value->asString()).is_relative())
      *value = (prefix / value->asString()).lexically_normal().string();
  };
  for (const Key& key : table.keys) {
    Json::Value* value = key.is_file ? find(root, key.path) : nullptr;
    if (value && value->isArray())
      for (Json::Value& element : *value) move(&element);
    else if (value)
      move(value);
  }
}

std::string read_file(const std::string& path, const std::string& said_by) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    throw Error(ErrorClass::configuration,
                fmt::format("{}cannot read '{}': it is a directory", said_by, path));
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Error(ErrorClass::configuration,
                fmt::format("{}cannot read '{}': {}", said_by, path, std::strerror(errno)));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Source with_bases(Source source, const std::string& name, const fs::path& directory,
                  const KeyTable& table, std::vector<std::string> chain) {
  if (!source.root.isMember("extends")) return source;
  const Json::Value extends = source.root["extends"];
  const std::string place = source.places["extends"];
  source.root.removeMember("extends");
  forget_places("extends", &source.places);
  if (!extends.isString())
    throw Error(ErrorClass::configuration,
                fmt::format("{}: extends: {} must be the name of a scenario file, relative to this "
                            "one's directory",
                            place, value_text(extends)));
  const std::string base_path = (directory / extends.asString()).lexically_normal().string();
  chain.push_back(fs::path(name).lexically_normal().string());
  if (std::find(chain.begin(), chain.end(), base_path) != chain.end())
    throw Error(ErrorClass::configuration,
                fmt::format("{}: extends: \"{}\" comes back to a file that extends it", place,
                            extends.asString()));
  const fs::path base_directory = fs::path(base_path).parent_path();
  Source base = with_bases(parse_source(read_file(base_path, place + ": extends: "), base_path),
                           base_path, base_directory, table, chain);
  move_files(table,
             base_directory.lexically_relative(directory.empty() ? fs::path(".") : directory)
                 .lexically_normal(),
             &base.root);
  merge(source.root, "", &base.root, &base.places);
  for (const auto& [path, where] : source.places) base.places[path] = where;
  return base;
}

}  // namespace

std::string value_text(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  builder["emitUTF8"] = true;
  std::string text = Json::writeString(builder, value);
  if (text.size() > 80) {
    size_t cut = 77;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
    text = text.substr(0, cut) + "...";
  }
  return text;
}

Source parse_source(const std::string& text, const std::string& name) {
  Source source;
  std::string errors;
  bool good = false;
  try {
    good = make_reader()->parse(text.data(), text.data() + text.size(), &source.root, &errors);
  } catch (const std::exception& error) {
    errors = fmt::format("* Line 1, Column 1\n  {}\n", error.what());
  }
  if (!good) throw Error(ErrorClass::configuration, rewrite_errors(errors, name));
  if (!source.root.isObject())
    throw Error(ErrorClass::configuration,
                fmt::format("{}:1: a scenario is an object {{...}}, not {}", name,
                            value_text(source.root)));
  note_places(source.root, "", name, LineFinder(text), &source.places);
  return source;
}

Source read_source_text(const std::string& text, const std::string& name,
                        const std::string& directory, const KeyTable& table) {
  return with_bases(parse_source(text, name), name, directory, table, {});
}

Source read_source(const std::string& path, const KeyTable& table) {
  return read_source_text(read_file(path, ""), path, fs::path(path).parent_path().string(), table);
}

void apply_override(const std::string& override_text, const KeyTable& table, Source* source,
                    Problems* problems) {
  const std::string place = "--set " + override_text;
  const size_t equals = override_text.find('=');
  if (equals == std::string::npos || equals == 0) {
    problems->error_at(place, "write it as key=value, e.g. training_config.steps=10");
    return;
  }
  const std::string path = override_text.substr(0, equals), text = override_text.substr(equals + 1);
  const Key* key = table.find_key(path);
  if (!key && !table.find_section(path)) {
    const std::string nearest = nearest_key(table, path);
    problems->error_at(place,
                       "unknown key" + (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
    return;
  }
  Json::Value value(text);
  const bool is_text = key && (std::holds_alternative<Member<std::string>>(key->field) ||
                               key->path != path);  // an entry of an object of texts
  Json::Value parsed;
  std::string errors;
  bool is_json = false;
  try {
    is_json = make_reader()->parse(text.data(), text.data() + text.size(), &parsed, &errors);
  } catch (const std::exception&) {
    is_json = false;  // nested too deep: the text itself then fails the key's rule
  }
  if (is_json && (!is_text || parsed.isString())) value = parsed;
  // One file name stands for a list of one.
  const bool is_list = key && (key->field.index() == 5 || key->field.index() == 6);
  if (is_list && !value.isArray()) {
    Json::Value list(Json::arrayValue);
    list.append(value);
    value = list;
  }
  Json::Value* at = &source->root;
  std::string reached;
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    reached += (reached.empty() ? "" : ".") + part;
    // A section that was null or of a wrong type gives way.
    if (!at->isObject()) *at = Json::Value(Json::objectValue);
    at = &(*at)[part];
    if (reached != path && !source->places.count(reached)) source->places[reached] = place;
  }
  *at = value;
  forget_places(path, &source->places);
  source->places[path] = place;
}

}  // namespace moetwin
