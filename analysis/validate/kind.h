#pragma once
// Kinds of published measurements: which table each is in and how its rows become runs. A kind is
// one file and one line of kinds().

#include <functional>
#include <string>
#include <vector>

#include "analysis/validate/batch.h"
#include "analysis/validate/published.h"
#include "analysis/validate/score.h"

namespace moetwin {

/// What a kind makes of its rows: the batches to run. `results` has one entry per row, `id` and
/// `series` filled in; the kind fills in standing and reason, and where it scores a row `measured`,
/// `unit` and `caveat`. Batches name rows by their position.
struct RowPlan {
  std::vector<RowResult> results;
  std::vector<Batch> batches;
};

struct Kind {
  const char* name;                  ///< of --kind
  const char* file_stem;             ///< of the table: "nccl" for nccl.csv
  const char* what;                  ///< a line for reports
  std::vector<std::string> columns;  ///< without these there is nothing to predict
  void (*plan)(const std::vector<PublishedRow>& rows, RowPlan& plan);
};

std::vector<Kind> kinds();

/// `read` for every row; one that finds a field unreadable (UnreadableField) is refused.
void for_each_row(const std::vector<PublishedRow>& rows, RowPlan& plan,
                  const std::function<void(const PublishedRow&, size_t, RowResult&)>& read);

/// Marks a row as one that cannot be expressed.
void refuse(RowResult& result, const std::string& reason);

void plan_collectives(const std::vector<PublishedRow>& rows, RowPlan& plan);
void plan_kernels(const std::vector<PublishedRow>& rows, RowPlan& plan);
void plan_dense(const std::vector<PublishedRow>& rows, RowPlan& plan);
void plan_moe(const std::vector<PublishedRow>& rows, RowPlan& plan);
void plan_memory(const std::vector<PublishedRow>& rows, RowPlan& plan);

}  // namespace moetwin
