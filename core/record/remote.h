#pragma once
// The record of a job of several processes: one keeps it, the others send it what their ranks hand
// in, as bytes by whatever way the machine has.

#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "core/record/run_sink.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// Turns what is handed in into bytes for RemoteReceiver.
class RemoteSink : public RunSink {
 public:
  RemoteSink(const Scenario& scenario, std::function<void(const std::string&)> send);
  bool wants_detail(int64_t step) const override;
  void add(RankStep step) override;
  void add_validation(int64_t rank, int64_t step, double ce_sum, int64_t tokens) override;

 private:
  const Scenario scenario_;
  std::function<void(const std::string&)> send_;
};

/// Hands the bytes of RemoteSinks to a sink of this process. Must outlive what that sink keeps:
/// intervals point to names that are kept here.
class RemoteReceiver {
 public:
  explicit RemoteReceiver(RunSink& sink) : sink_(sink) {}
  /// From any thread. Throws Error(fault) when the bytes are not those of a RemoteSink.
  void receive(const std::string& bytes);

 private:
  const char* keep(const std::string& name);
  RunSink& sink_;
  std::mutex mutex_;
  std::set<std::string> names_;
};

}  // namespace moetwin
