#pragma once
// A small scenario around the data of a test, and what its source holds.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/train/data.h"
#include "tests/support/temporary_directory.h"

namespace moetwin::test {

inline Scenario data_scenario(const TemporaryDirectory& directory, const std::string& format,
                              std::vector<std::string> files, int64_t sequence_length,
                              int64_t vocab = 256) {
  Scenario scenario;
  scenario.path = directory / "scenario.json";
  scenario.model_config.sequence_length = sequence_length;
  scenario.model_config.vocab_size = vocab;
  scenario.training_config.global_batch_size = 1;
  scenario.data.format = format;
  scenario.data.files = std::move(files);
  scenario.data.validation_fraction = 0;
  return scenario;
}

/// Every sequence of a split.
inline std::vector<std::vector<int32_t>> all_sequences(const TokenSource& source, Split split,
                                                       int64_t sequence_length) {
  std::vector<std::vector<int32_t>> all;
  for (int64_t s = 0; s < source.sequences(split); ++s) {
    all.emplace_back(static_cast<size_t>(sequence_length) + 1);
    source.read(split, s, all.back().data());
  }
  return all;
}

/// The message of the configuration error that `body` ends with.
template <class Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::configuration);
    return error.what();
  }
  FAIL("nothing was refused");
  return "";
}

inline std::string little_endian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
  return out;
}

}  // namespace moetwin::test
