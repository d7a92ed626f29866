#pragma once
// How the parts of the key table are written down. Only core/scenario/keys*.cpp include this.

#include <string>
#include <type_traits>
#include <utility>

#include "core/scenario/keys.h"

// A key whose path is the spelling of its member, so that the two cannot differ.
#define MOETWIN_KEY(member) \
#member, [](Scenario & s) -> auto& { return s.member; }
// The same within a struct that occurs in several places: `get` leads to it.
#define MOETWIN_SUBKEY(prefix, get, member) \
  prefix + "." #member, [get](Scenario & s) -> auto& { return get(s).member; }

namespace moetwin {

class KeyList {
 public:
  explicit KeyList(KeyTable* table) : table_(table) {}

  void section(const std::string& path, const std::string& description) {
    table_->sections.push_back({path, description, nullptr, nullptr});
  }

  template <class Get>
  Key& key(const std::string& path, Get get, const std::string& description) {
    using T = std::remove_reference_t<std::invoke_result_t<Get, Scenario&>>;
    Key key;
    key.path = path;
    key.field = Member<T>(get);
    key.description = description;
    table_->keys.push_back(std::move(key));
    return table_->keys.back();
  }

  KeyTable* table() { return table_; }

 private:
  KeyTable* table_;
};

void add_model_keys(KeyList& list);
void add_distributed_keys(KeyList& list);
void add_training_keys(KeyList& list);
void add_routing_keys(KeyList& list);
void add_run_keys(KeyList& list);

}  // namespace moetwin
