#pragma once
// Scenario text -> a tree of values that knows where each value was written: comments and trailing
// commas, duplicate keys refused, `extends`, and `--set` overrides.

#include <json/value.h>

#include <string>
#include <vector>

#include "core/scenario/keys.h"
#include "core/scenario/problems.h"

namespace moetwin {

/// One tree of values and the place of each.
struct Source {
  Json::Value root{Json::objectValue};
  Places places;
};

/// Parses one file's text. Syntax errors and duplicate keys throw Error(configuration) with
/// "name:line:column" of each.
Source parse_source(const std::string& text, const std::string& name);

/// Reads a file and the chain of files it `extends`, nearest last; values of the nearer file win.
/// File names in a base are rewritten to be relative to the directory of `path`.
Source read_source(const std::string& path, const KeyTable& table);
/// The same for text already in memory that stands in `directory`.
Source read_source_text(const std::string& text, const std::string& name,
                        const std::string& directory, const KeyTable& table);

/// Applies "path=value". The value is JSON where it parses as such and the key is no text, else the
/// text itself.
void apply_override(const std::string& override_text, const KeyTable& table, Source* source,
                    Problems* problems);

/// Compact JSON of a value for a message, cut after 80 characters.
std::string value_text(const Json::Value& value);

}  // namespace moetwin
