#include "core/scenario/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/scenario/key_list.h"

namespace moetwin {
namespace {

// Levenshtein distance.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }
std::string parent_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string bound_text(const Bounds& b) {
  std::string low, high;
  if (b.minimum)
    low = (b.exclusive_minimum ? "above " : "at least ") + fmt::format("{}", *b.minimum);
  if (b.maximum)
    high = (b.exclusive_maximum ? "below " : "at most ") + fmt::format("{}", *b.maximum);
  return low.empty() || high.empty() ? low + high : low + " and " + high;
}

}  // namespace

Key& Key::between(double minimum, double maximum) {
  bounds.minimum = minimum, bounds.maximum = maximum;
  return *this;
}
Key& Key::at_least(double minimum) {
  bounds.minimum = minimum;
  return *this;
}
Key& Key::above(double minimum) {
  bounds.minimum = minimum, bounds.exclusive_minimum = true;
  return *this;
}
Key& Key::below(double maximum) {
  bounds.maximum = maximum, bounds.exclusive_maximum = true;
  return *this;
}
Key& Key::in(const char* unit_name) {
  unit = unit_name;
  return *this;
}
Key& Key::one_of(std::vector<std::string> values) {
  choices = std::move(values);
  return *this;
}
Key& Key::files() {
  is_file = true;
  return *this;
}
Key& Key::or_integer() {
  integer_allowed = true;
  return *this;
}

const Key* KeyTable::find_key(const std::string& path) const {
  for (const Key& key : keys) {
    if (key.path == path) return &key;
    if (std::holds_alternative<Member<Texts>>(key.field) && parent_of(path) == key.path)
      return &key;
  }
  return nullptr;
}

const Section* KeyTable::find_section(const std::string& path) const {
  for (const Section& section : sections)
    if (section.path == path) return &section;
  return nullptr;
}

KeyTable scenario_keys() {
  KeyTable table;
  KeyList list(&table);
  list.key(MOETWIN_KEY(name), "Name of the run; left out: the file's stem.");
  list.key(MOETWIN_KEY(description), "What the scenario asks, in words.");
  add_model_keys(list);
  add_distributed_keys(list);
  add_training_keys(list);
  add_routing_keys(list);
  add_run_keys(list);
  return table;
}

Scenario scenario_with_all_sections(const KeyTable& table) {
  Scenario scenario;
  for (const Section& section : table.sections)
    if (section.set_present) section.set_present(scenario, true);
  return scenario;
}

std::string type_name(const Key& key) {
  constexpr const char* kNames[] = {"integer",       "number",         "true or false",
                                    "text",          "number or null", "list of integers",
                                    "list of texts", "object of texts"};
  if (key.integer_allowed) return "text or integer";
  return kNames[key.field.index()];
}

std::string rule_text(const Key& key) {
  const std::string type = type_name(key);
  if (!key.choices.empty())
    return fmt::format("{}one of: {}", type == "list of texts" ? "a list of texts, each " : "",
                       fmt::join(key.choices, ", "));
  if (type == "true or false") return type;
  const std::string article = type == "integer" || type == "object of texts" ? "an " : "a ";
  const std::string bounds = bound_text(key.bounds);
  if (bounds.empty()) return article + type;
  if (key.field.index() == 5) return article + type + ", each " + bounds;
  if (key.field.index() == 4) return "a number " + bounds + ", or null";
  return article + type + (key.bounds.exclusive_minimum ? " " : " of ") + bounds;
}

std::string nearest_key(const KeyTable& table, const std::string& unknown) {
  std::vector<std::string> known;
  for (const Key& key : table.keys) known.push_back(key.path);
  for (const Section& section : table.sections) known.push_back(section.path);
  const std::string leaf = last_part(unknown), parent = parent_of(unknown);
  std::string best;
  // A typing mistake costs its edits; the right name in a wrong section costs little beside that.
  size_t best_cost = std::max<size_t>(2, leaf.size() / 3) * 4 + 3;
  for (const std::string& path : known) {
    const size_t misplaced = parent_of(path) == parent ? 0 : edit_distance(parent_of(path), parent);
    const size_t cost =
        edit_distance(last_part(path), leaf) * 4 + (misplaced ? 2 + misplaced / 16 : 0);
    if (cost < best_cost) best_cost = cost, best = path;
  }
  return best;
}

}  // namespace moetwin
