#pragma once
// What a rank did, as a list: the core's op list with prices, without tensors. Passes between two
// points of it become a max-plus matrix: when each clock stands how far, given where they stood.

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "backends/sim/representative/collective_prices.h"
#include "backends/sim/representative/figures.h"
#include "core/device/profile.h"
#include "core/record/step_parts.h"

namespace moetwin {

/// Clocks of a rank: the host's, and those of its first streams in order of making (compute,
/// dispatch, reduction, gather).
inline constexpr int kClocks = 5;
inline constexpr int kHostClock = 0, kComputeClock = 1, kDispatchClock = 2;
using Clocks = std::array<double, kClocks>;

/// One entry of the list. An event is a number: the place of its record among the list's records.
struct Item {
  enum class Kind : uint8_t { work, collective, record, wait, synchronize, host };
  Kind kind = Kind::work;
  Activity activity = Activity::compute;
  Phase phase = Phase::other;
  int8_t clock = 0;    ///< of the stream
  int32_t event = -1;  ///< record, wait
  double host = 0;     ///< seconds of the host's clock that the launch takes
  double seconds = 0;  ///< on the stream
  /// work: seconds after the host began to launch when it would end on an idle stream
  double host_bound = 0;
  double launched = 0;  ///< work: and when its first kernel is there
  float products = 0;   ///< work: share of `seconds` that is of matrix products and attention
  /// collective: by how much it lengthens such work beside it, and other work (of guests' weights
  /// and gradients, which run beside compute in the list itself; 0: of all others).
  double slows_products = 0, slows_others = 0;
  PortUse ports;  ///< collective
  /// collective: lists of several ranks that were recorded with it wait for each other here, of
  /// equal `group` where it is not -1.
  int64_t group = -1;
};
using ItemList = std::vector<Item>;

inline constexpr double kNever = -std::numeric_limits<double>::infinity();

/// A collective on the compute or dispatch stream.
struct Exchange {
  double start = 0;  ///< after the compute clock at the beginning
  double seconds = 0;
  PortUse ports;
};

/// A stretch of the list: clocks after = max over clocks before of (before + entry).
struct Segment {
  /// By clock after and clock before.
  std::array<std::array<double, kClocks>, kClocks> after;
  /// Where the seconds go when the same is done again and again; they sum to `steady_seconds`.
  StepParts parts;
  double steady_seconds = 0;
  std::vector<Sent> sent;
  int64_t host_syncs = 0;
  std::vector<Exchange> exchanges;  ///< when the same is done again and again
  PortUse background;               ///< of its collectives on other streams, mean over their time
  /// When the same is done again and again: seconds of kernels on the compute stream, and the share
  /// of these that is of matrix products and attention.
  double busy = 0;
  float products = 0;

  /// Nothing: every clock stays.
  Segment();
  void apply(Clocks& clocks) const;
  /// This one, then `next`; without its exchanges.
  void then(const Segment& next);
};

Segment make_segment(const ItemList& items);
/// Of ranks that begin together and do the same with other loads: in each collective on the compute
/// or dispatch stream they wait for the latest. Parts and traffic are those of the first.
Segment make_segment(const std::vector<const ItemList*>& ranks);

/// Goes through the list from `clocks` on; notes what ran when, and which collectives.
void replay(const ItemList& items, Clocks& clocks, std::vector<Interval>* intervals = nullptr,
            std::vector<Exchange>* exchanges = nullptr);
/// The same for several, each from its clocks on.
void replay(const std::vector<const ItemList*>& ranks, std::vector<Clocks>& clocks,
            std::vector<Interval>* intervals = nullptr, std::vector<Exchange>* exchanges = nullptr);

}  // namespace moetwin
