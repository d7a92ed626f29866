#include "analysis/validate/batch.h"

#include <json/json.h>

#include <algorithm>
#include <cmath>

#include "analysis/batch/processes.h"
#include "core/record/json_text.h"

namespace moetwin {
namespace {

std::string encode(const std::vector<Prediction>& predictions) {
  Json::Value list(Json::arrayValue);
  for (const Prediction& p : predictions) {
    Json::Value entry(Json::arrayValue);
    entry.append(std::isfinite(p.value) ? Json::Value(p.value) : Json::Value());
    entry.append(p.note);
    list.append(entry);
  }
  return json_text(list);
}

std::vector<Prediction> decode(const std::string& text, size_t rows, const std::string& otherwise) {
  std::vector<Prediction> predictions(rows);
  Json::Value list;
  Json::CharReaderBuilder builder;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  const bool whole =
      reader->parse(text.data(), text.data() + text.size(), &list, nullptr) && list.isArray();
  for (size_t i = 0; i < rows; ++i) {
    if (!whole || list.size() != rows) {
      predictions[i].note = otherwise;
      continue;
    }
    const Json::Value& entry = list[static_cast<Json::ArrayIndex>(i)];
    if (entry[0].isNumeric()) predictions[i].value = entry[0].asDouble();
    predictions[i].note = entry[1].asString();
  }
  return predictions;
}

}  // namespace

void run_batches(const std::vector<Batch>& batches, const MakeCluster& make,
                 const BatchOptions& options,
                 const std::function<void(size_t row, const Prediction&)>& take) {
  ProcessOptions processes;
  processes.processes = std::max(1, options.processes);
  processes.seconds = options.seconds;
  processes.all_seconds = options.all_seconds;
  size_t done = 0;
  processes.on_done = [&](size_t, const JobResult&) {
    ++done;
    if (options.progress) options.progress(done, batches.size());
  };
  const std::vector<JobResult> results = run_in_processes(
      batches.size(), [&](size_t i) { return encode(batches[i].run(make)); }, processes);
  for (size_t b = 0; b < batches.size(); ++b) {
    const std::vector<size_t>& rows = batches[b].rows;
    const std::vector<Prediction> predictions =
        decode(results[b].bytes, rows.size(),
               results[b].ok ? "internal error: another number of predictions" : results[b].error);
    for (size_t i = 0; i < rows.size(); ++i) take(rows[i], predictions[i]);
  }
}

}  // namespace moetwin
