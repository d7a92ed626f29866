#pragma once
// The judge of a trained language model: a bigram model fitted on the same training split.

#include <cmath>
#include <vector>

#include "core/train/data.h"

namespace moetwin::test {

/// Mean cross-entropy in nats per token on the first `validation_sequences` (0: all) of the
/// validation split, of a bigram model fitted on every pair (input, target) of the training split.
/// Witten-Bell interpolation: P(b|a) = (c(ab) + t(a) P(b)) / (c(a) + t(a)), t(a) the number of
/// different successors of a, P(b) = (c(b) + 1) / (N + V): a stronger judge than add-one.
inline double bigram_loss(const TokenSource& data, int64_t sequence_length, int64_t vocab,
                          int64_t validation_sequences = 0) {
  const auto v = static_cast<size_t>(vocab);
  std::vector<double> pairs(v * v), first(v), second(v), kinds(v);
  std::vector<int32_t> tokens(static_cast<size_t>(sequence_length) + 1);
  double total = 0;
  for (int64_t s = 0; s < data.sequences(Split::train); ++s) {
    data.read(Split::train, s, tokens.data());
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto a = static_cast<size_t>(tokens[i]), b = static_cast<size_t>(tokens[i + 1]);
      kinds[a] += pairs[a * v + b] == 0;
      ++pairs[a * v + b], ++first[a], ++second[b], ++total;
    }
  }
  double nats = 0, count = 0;
  int64_t last = data.sequences(Split::validation);
  if (validation_sequences > 0 && validation_sequences < last) last = validation_sequences;
  for (int64_t s = 0; s < last; ++s) {
    data.read(Split::validation, s, tokens.data());
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto a = static_cast<size_t>(tokens[i]), b = static_cast<size_t>(tokens[i + 1]);
      const double unigram = (second[b] + 1) / (total + static_cast<double>(vocab));
      const double weight = first[a] + kinds[a];
      nats -= std::log(weight > 0 ? (pairs[a * v + b] + kinds[a] * unigram) / weight : unigram);
      ++count;
    }
  }
  return nats / count;
}

}  // namespace moetwin::test
