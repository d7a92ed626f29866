#include "backends/sim/cluster/figures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <json/reader.h>
#include <json/writer.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "core/base/error.h"

namespace moetwin {
namespace {

std::string short_text(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  const std::string text = Json::writeString(builder, value);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

/// Places in another file mean nothing in this one.
void forget_places(Json::Value& value) {
  value.setOffsetStart(0);
  value.setOffsetLimit(0);
  if (value.isObject() || value.isArray())
    for (Json::Value& member : value) forget_places(member);
}

void merge(Json::Value& into, const Json::Value& base) {
  for (const std::string& name : base.getMemberNames()) {
    if (!into.isMember(name)) {
      forget_places(into[name] = base[name]);
    } else if (into[name].isObject() && base[name].isObject() && !base[name].isMember("value")) {
      merge(into[name], base[name]);
    }
  }
}

}  // namespace

void Figures::take_base(const Figures& base) {
  Json::Value given = base.root_;
  given.removeMember("base");
  given.removeMember("description");
  if (!part_path_.empty()) given.removeMember(part_path_);  // the file names its own
  merge(root_, given);
}

std::string Figures::merged_text() const {
  Json::Value merged = root_;
  merged.removeMember("base");
  return Json::writeString(Json::StreamWriterBuilder(), merged);
}

namespace {
Json::Value parsed(const std::string& text, const std::string& file, const char* what) {
  Json::CharReaderBuilder builder;
  builder["collectComments"] = false;
  builder["allowTrailingCommas"] = true;
  builder["rejectDupKeys"] = true;
  builder["failIfExtra"] = true;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  std::string errors;
  Json::Value value;
  bool good = false;
  try {
    good = reader->parse(text.data(), text.data() + text.size(), &value, &errors);
  } catch (const std::exception& error) {
    errors = error.what();
  }
  if (good && value.isObject()) return value;
  std::replace(errors.begin(), errors.end(), '\n', ' ');
  throw Error(
      ErrorClass::configuration,
      fmt::format("{}: {}", file, good ? fmt::format("{} is an object {{...}}", what) : errors));
}
}  // namespace

Figures::Figures(const std::string& text, const std::string& file, const std::string& part)
    : whole_{text, file}, root_(parsed(text, file, "a machine profile")) {
  if (part.empty() || !root_.isMember(part) || !root_[part].isString()) return;
  namespace fs = std::filesystem;
  const fs::path directory = fs::path(file).parent_path() / (part + "s");
  const std::string name = root_[part].asString();
  part_.file = (directory / (name + ".json")).string();
  std::ifstream in(part_.file, std::ios::binary);
  if (!in) {
    std::vector<std::string> known;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(directory, none))
      if (entry.path().extension() == ".json") known.push_back(entry.path().stem().string());
    std::sort(known.begin(), known.end());
    fault(part, fmt::format("\"{}\": there is no file {}; known: {}", name, part_.file,
                            fmt::join(known, ", ")));
    throw Error(ErrorClass::configuration, faults_.front());
  }
  std::ostringstream all;
  all << in.rdbuf();
  part_.text = all.str();
  part_path_ = part;
  root_[part] = parsed(part_.text, part_.file, "a part of a machine profile");
}

const Figures::Source& Figures::source_of(const std::string& path) const {
  const bool in_part =
      !part_path_.empty() && path.compare(0, part_path_.size() + 1, part_path_ + ".") == 0;
  return in_part ? part_ : whole_;
}

const Json::Value* Figures::find(const std::string& path) const {
  const Json::Value* at = &root_;
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    if (!at->isObject() || !at->isMember(part)) return nullptr;
    at = &(*at)[part];
  }
  return at;
}

bool Figures::has(const std::string& path) const { return find(path) != nullptr; }

void Figures::fault(const std::string& path, const std::string& message) {
  std::string at = path;
  const Json::Value* value = find(at);
  while (!value && at.find('.') != std::string::npos) {
    at = at.substr(0, at.rfind('.'));
    value = find(at);
  }
  const auto offset = value ? std::max<ptrdiff_t>(0, value->getOffsetStart()) : 0;
  const Source& from = source_of(at);
  const auto line = 1 + std::count(from.text.begin(), from.text.begin() + offset, '\n');
  faults_.push_back(fmt::format("{}:{}: {}: {}", from.file, line, path, message));
}

double Figures::figure(const std::string& path, Rule rule) {
  for (const char* part : {"", ".value", ".source"}) known_.insert(path + part);
  const Json::Value* value = find(path);
  if (!value) {
    fault(path, "is missing; write {\"value\": number, \"source\": \"where it is from\"}");
    return 0;
  }
  if (!value->isObject() || !(*value)["value"].isNumeric() || !(*value)["source"].isString() ||
      (*value)["source"].asString().empty()) {
    fault(path, fmt::format("{} must be {{\"value\": number, \"source\": \"where it is from\"}}",
                            short_text(*value)));
    return 0;
  }
  const double number = (*value)["value"].asDouble();
  const bool legal = std::isfinite(number) && (rule == Rule::positive       ? number > 0
                                               : rule == Rule::not_negative ? number >= 0
                                               : rule == Rule::fraction ? number > 0 && number <= 1
                                                                        : true);
  if (!legal)
    fault(path, fmt::format("value {} must be {}", short_text((*value)["value"]),
                            rule == Rule::positive       ? "greater than 0"
                            : rule == Rule::not_negative ? "0 or more"
                            : rule == Rule::fraction     ? "greater than 0 and at most 1"
                                                         : "a finite number"));
  return number;
}

double Figures::figure_or(const std::string& path, Rule rule, double otherwise) {
  if (!has(path)) {
    known_.insert(path);
    return otherwise;
  }
  return figure(path, rule);
}

int64_t Figures::count(const std::string& path, int64_t least) {
  const double number = figure(path, Rule::any);
  if (number != std::floor(number) || number < static_cast<double>(least) || number > 1e9)
    fault(path, fmt::format("value {} must be a whole number, {} or more", number, least));
  return static_cast<int64_t>(number);
}

std::string Figures::text_or(const std::string& path, const std::string& otherwise) {
  known_.insert(path);
  const Json::Value* value = find(path);
  if (!value) return otherwise;
  if (!value->isString()) {
    fault(path, fmt::format("{} must be text", short_text(*value)));
    return otherwise;
  }
  return value->asString();
}

std::string Figures::source(const std::string& path) const {
  const Json::Value* value = find(path);
  return value && value->isObject() && (*value)["source"].isString() ? (*value)["source"].asString()
                                                                     : "";
}

const Json::Value* Figures::any(const std::string& path) {
  known_.insert(path + ".*");
  return find(path);
}

void Figures::note_unknown(const Json::Value& value, const std::string& path) {
  for (const std::string& member : value.getMemberNames()) {
    const std::string at = path.empty() ? member : path + "." + member;
    if (known_.count(at + ".*")) continue;
    const bool section = std::any_of(known_.begin(), known_.end(), [&](const std::string& k) {
      return k.compare(0, at.size() + 1, at + ".") == 0;
    });
    if (!known_.count(at) && !section) {
      const std::string* nearest = nullptr;
      for (const std::string& k : known_)
        if (k.find(".value") == std::string::npos && k.find(".source") == std::string::npos &&
            (!nearest || distance(k, at) < distance(*nearest, at)))
          nearest = &k;
      fault(at, fmt::format("is not a known key{}",
                            nearest ? fmt::format("; the nearest is {}", *nearest) : ""));
    } else if (section && value[member].isObject()) {
      note_unknown(value[member], at);
    }
  }
}

void Figures::finish() {
  note_unknown(root_, "");
  if (faults_.empty()) return;
  std::string text = faults_.size() == 1 ? "" : fmt::format("{} errors:\n", faults_.size());
  for (size_t i = 0; i < faults_.size(); ++i) text += (i ? "\n" : "") + faults_[i];
  throw Error(ErrorClass::configuration, text);
}

}  // namespace moetwin
