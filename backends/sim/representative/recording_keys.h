#pragma once
// What a recording depends on, as bytes: equal bytes, equal recordings.

#include <string>
#include <vector>

#include "core/scenario/keys.h"

namespace moetwin {

/// The bytes of a value behind those of a key.
template <class T>
void append(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

class RecordingKeys {
 public:
  RecordingKeys();
  /// Of the passes through a layer, embedding or head, but for sizes that are added to it.
  std::string layer(const Scenario& scenario) const;
  /// Of what a stage does around its layers.
  std::string stage(const Scenario& scenario) const;
  /// Of the counts of a micro-batch of one layer and source, but for sizes that are added to it.
  std::string routing(const Scenario& scenario) const;

 private:
  std::vector<Field> layer_, stage_, routing_;
};

}  // namespace moetwin
