#pragma once
// The one table of scenario keys. Reading, checking, writing, the JSON Schema and the reference
// page of the docs derive from it: a key added here exists everywhere.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/scenario/scenario.h"

namespace moetwin {

/// The place of a value in a Scenario. Sections that may be absent must be present first.
template <class T>
using Member = std::function<T&(Scenario&)>;

/// Texts by name, where the names are free.
using Texts = std::map<std::string, std::string>;

/// A member of any type a key may have.
using Field = std::variant<Member<int64_t>, Member<double>, Member<bool>, Member<std::string>,
                           Member<std::optional<double>>, Member<std::vector<int64_t>>,
                           Member<std::vector<std::string>>, Member<Texts>>;

/// Limits of a number; an absent one is no limit.
struct Bounds {
  std::optional<double> minimum, maximum;
  bool exclusive_minimum = false;
  bool exclusive_maximum = false;
};

/// One key of a scenario file.
struct Key {
  std::string path;  ///< dotted, as --set takes it: "model_config.hidden_size"
  Field field;
  std::string description;  ///< one line; says what 0, null or an empty value means
  std::string unit;         ///< "tokens", "seconds"; empty: a plain number
  Bounds bounds;
  std::vector<std::string> choices;  ///< the legal texts; empty: any text
  bool is_file = false;              ///< names files, relative to the scenario's directory
  bool integer_allowed = false;      ///< a text that may be written as an integer too

  Key& between(double minimum, double maximum);
  Key& at_least(double minimum);
  Key& above(double minimum);
  Key& below(double maximum);
  Key& in(const char* unit_name);
  Key& one_of(std::vector<std::string> values);
  Key& files();
  Key& or_integer();
};

/// One object of a scenario file.
struct Section {
  std::string path;
  std::string description;
  /// Only for sections that may be null: is it there, and make it be there or not.
  std::function<bool(const Scenario&)> present;
  std::function<void(Scenario&, bool)> set_present;
};

/// All keys and sections; a section stands before its keys.
struct KeyTable {
  std::vector<Section> sections;
  std::vector<Key> keys;

  /// The entry of a key that holds texts by name is found as that key.
  const Key* find_key(const std::string& path) const;
  const Section* find_section(const std::string& path) const;
};

/// The whole table, in the order of the documentation.
KeyTable scenario_keys();

/// A scenario of defaults in which every section is present, for reading defaults from.
Scenario scenario_with_all_sections(const KeyTable& table);

/// "integer", "number", "true or false", "text", "number or null", "list of integers", "list of
/// texts".
std::string type_name(const Key& key);
/// The rule of a key in words: "an integer of at least 1", "one of: fp32, bf16".
std::string rule_text(const Key& key);

/// The known key or section closest to an unknown one; empty where none is close. A key that only
/// stands in the wrong section is found by its last part.
std::string nearest_key(const KeyTable& table, const std::string& unknown);

}  // namespace moetwin
