#include <numeric>
#include <vector>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/train/data.h"

namespace moetwin {

namespace {

class SyntheticSource final : public TokenSource {
 public:
  SyntheticSource(uint64_t seed, int64_t sequence_length, int64_t vocab_size)
      : seed_(seed), length_(sequence_length), vocab_(vocab_size) {}

  int64_t sequences(Split split) const override {
    return split == Split::train ? int64_t{1} << 24 : int64_t{1} << 16;
  }
  void read(Split split, int64_t sequence, int32_t* tokens) const override {
    require(sequence >= 0 && sequence < sequences(split), "sequence number inside the split");
    // Sub-streams 1 and 2 of the data purpose; BatchOrder has 0.
    const PhiloxKey key = philox_key(seed_, Purpose::data, split == Split::train ? 1 : 2,
                                     static_cast<uint32_t>(sequence));
    const auto vocab = static_cast<uint32_t>(vocab_);
    tokens[0] = static_cast<int32_t>(philox_below(key, 0, vocab));
    for (int64_t i = 1; i <= length_; ++i) {
      const auto at = static_cast<uint64_t>(2 * i);
      const bool follow = philox_uniform(key, at) < static_cast<float>(kSyntheticFollow);
      tokens[i] = follow ? static_cast<int32_t>((kSyntheticStep * tokens[i - 1] + 1) % vocab_)
                         : static_cast<int32_t>(philox_below(key, at + 1, vocab));
    }
  }
  std::string description() const override { return "synthetic, seeded"; }

 private:
  uint64_t seed_;
  int64_t length_, vocab_;
};

class DomainSource final : public TokenSource {
 public:
  DomainSource(uint64_t seed, int64_t sequence_length, int64_t vocab_size)
      : seed_(seed), vocab_(vocab_size) {
    const auto vocab = static_cast<uint32_t>(vocab_);
    for (int64_t p = 0; p < sequence_length; ++p) {
      // Sub-stream 3 of the data purpose has the rules.
      const PhiloxKey key = philox_key(seed_, Purpose::data, 3, static_cast<uint32_t>(p));
      Rule rule;
      rule.add = philox_below(key, 0, vocab);
      for (uint64_t draw = 1; std::gcd(rule.factor, vocab_) != 1; ++draw)
        rule.factor = philox_below(key, draw, vocab);
      rules_.push_back(rule);
    }
  }

  int64_t sequences(Split split) const override {
    return split == Split::train ? int64_t{1} << 24 : int64_t{1} << 16;
  }
  void read(Split split, int64_t sequence, int32_t* tokens) const override {
    require(sequence >= 0 && sequence < sequences(split), "sequence number inside the split");
    const PhiloxKey key = philox_key(seed_, Purpose::data, split == Split::train ? 1 : 2,
                                     static_cast<uint32_t>(sequence));
    int64_t token = philox_below(key, 0, static_cast<uint32_t>(vocab_));
    tokens[0] = static_cast<int32_t>(token);
    for (const Rule& rule : rules_) {
      token = (rule.factor * token + rule.add) % vocab_;
      *++tokens = static_cast<int32_t>(token);
    }
  }
  std::string description() const override { return "synthetic domains, seeded"; }

 private:
  struct Rule {
    int64_t factor = 0, add = 0;
  };
  uint64_t seed_;
  int64_t vocab_;
  std::vector<Rule> rules_;
};

}  // namespace

std::unique_ptr<TokenSource> synthetic_domain_data(uint64_t seed, int64_t sequence_length,
                                                   int64_t vocab_size) {
  return std::make_unique<DomainSource>(seed, sequence_length, vocab_size);
}

std::unique_ptr<TokenSource> synthetic_data(uint64_t seed, int64_t sequence_length,
                                            int64_t vocab_size) {
  return std::make_unique<SyntheticSource>(seed, sequence_length, vocab_size);
}

}  // namespace moetwin
