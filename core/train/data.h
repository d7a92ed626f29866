#pragma once
// Where training sequences come from: files or a seeded generator behind one interface.

#include <cstdint>
#include <memory>
#include <string>

#include "core/scenario/scenario.h"

namespace moetwin {

enum class Split : uint8_t { train, validation };

/// Sequences of `sequence_length + 1` token ids: inputs are the first sequence_length, targets the
/// last sequence_length. Sequence i of a split begins at its token i * sequence_length, so that
/// every token but the first is a target once. Safe to read from several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t sequences(Split split) const = 0;
  /// Writes sequence_length + 1 ids. Throws Error(configuration) naming file, byte offset, value
  /// and rule when an id is not in the vocabulary.
  virtual void read(Split split, int64_t sequence, int32_t* tokens) const = 0;
  /// One line for reports: "text, 2,700,000 tokens in 55 files".
  virtual std::string description() const = 0;
};

/// The source that `data` of the scenario names. Relative paths are relative to the scenario's
/// directory. Validation is `validation_files` where given, else the last
/// ceil(validation_fraction * tokens) tokens. Throws Error(configuration) when a file is missing,
/// empty, truncated or has ids out of range, or when the training split is shorter than one global
/// batch. One source serves all ranks of a process.
std::unique_ptr<TokenSource> open_data(const Scenario& scenario);

/// Token t + 1 of the synthetic source is (kSyntheticStep * t + 1) mod V with this probability and
/// uniform over the V ids otherwise.
inline constexpr double kSyntheticFollow = 0.75;
inline constexpr int64_t kSyntheticStep = 5;

/// No file: sequences of a Markov chain that a model can learn, down to a cross-entropy of
/// -(q ln q + (V - 1) r ln r) with r = (1 - f) / V, q = f + r, f = kSyntheticFollow. A pure
/// function of seed, split and sequence number.
std::unique_ptr<TokenSource> synthetic_data(uint64_t seed, int64_t sequence_length,
                                            int64_t vocab_size);

/// No file: every position p of a sequence is a domain with a rule of its own. The first token is
/// uniform, then token p + 1 = (a_p * token p + b_p) mod V with a_p coprime to V, both seeded. So
/// tokens and domains are uniform, the same token means something else in each domain, and who
/// knows token and position knows the next token: the cross-entropy can fall to 0.
std::unique_ptr<TokenSource> synthetic_domain_data(uint64_t seed, int64_t sequence_length,
                                                   int64_t vocab_size);

}  // namespace moetwin
