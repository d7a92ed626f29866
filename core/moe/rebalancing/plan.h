#pragma once
// Which rank of an EP group works on which rows of which expert in one micro-batch of a layer. All
// ranks of the group know all counts and make the same plan. Without shares every row is worked on
// where its expert is at home: on rank e / (E / P).

#include <cstdint>
#include <functional>
#include <vector>

namespace moetwin {

/// Rows that each rank of the group has for each expert, by chunk of its tokens.
struct GroupCounts {
  int64_t ranks = 1, experts = 0, chunks = 1;
  std::vector<int64_t> rows;  ///< [ranks, experts, chunks]

  int64_t at(int64_t source, int64_t expert, int64_t chunk) const {
    return rows[static_cast<size_t>((source * experts + expert) * chunks + chunk)];
  }
  int64_t from(int64_t source, int64_t expert) const;  ///< over chunks
  int64_t of(int64_t expert) const;                    ///< over sources and chunks
  int64_t local_experts() const { return experts / ranks; }
  int64_t home(int64_t expert) const { return expert / local_experts(); }
  /// The same with the counts of expert e as those of expert places[e]: from here on an expert is
  /// named by the place where it is at home.
  GroupCounts by_place(const std::vector<int64_t>& places) const;
  /// Rows that ranks work on where nothing moves.
  std::vector<int64_t> at_home() const;
  /// Experts by their rows; of equally many the lower first.
  std::vector<int64_t> heaviest_first() const;
};

/// Part of an expert's rows.
struct WorkShare {
  int64_t rank = 0, rows = 0;
};

struct ExpertPlan {
  /// By expert; empty: all rows at home. Else they sum to the expert's rows, which are cut in order
  /// of source and chunk; each rank occurs once.
  std::vector<std::vector<WorkShare>> shares;
  std::vector<bool> shadowed;  ///< by expert: every rank works on its own rows; no shares then
  /// By rank, ascending: experts of other ranks whose weights it gets.
  std::vector<std::vector<int64_t>> guests;
  /// Guests come with the first forward of a step and leave after its last backward; else they are
  /// there for one micro-batch.
  bool for_the_step = false;
  /// By expert: where it is at home (placement.h); empty: in the place of its number.
  std::vector<int64_t> places;

  /// Of as many ranks and experts, with nothing moved.
  static ExpertPlan nothing(const GroupCounts& counts);
  bool moves() const;
  /// Every guest is on every rank: weights are broadcast, gradients reduced.
  bool everywhere() const;
  /// Where an expert's rows lie on a rank: its own experts first, then its guests.
  int64_t slot(const GroupCounts& counts, int64_t rank, int64_t expert) const;
  int64_t slots(const GroupCounts& counts, int64_t rank) const;
};

/// Rows of one source and expert in one chunk that one rank works on.
struct RowCut {
  int64_t source = 0, expert = 0, rank = 0, rows = 0;
};
/// Those of a chunk in order of expert, source and place in the source's rows; without empty ones.
void cut_rows(const ExpertPlan& plan, const GroupCounts& counts, int64_t chunk,
              const std::function<void(const RowCut&)>& visit);

}  // namespace moetwin
