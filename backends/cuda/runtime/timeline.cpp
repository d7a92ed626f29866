#include "backends/cuda/runtime/timeline.h"

#include <algorithm>
#include <map>

#include "backends/cuda/runtime/check.h"

namespace moetwin {

Timeline::Timeline(EventPool& events, std::function<double()> clock)
    : events_(events), clock_(std::move(clock)) {
  check_cuda(cudaStreamCreateWithFlags(&anchor_stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  anchor();
  host_since_ = anchor_seconds_;
}

Timeline::~Timeline() { cudaStreamDestroy(anchor_stream_); }

// The device's clock has no zero in common with the host's: take both at one moment, anew for each
// step, so that they do not drift apart.
void Timeline::anchor() {
  anchor_ = events_.get();
  check_cuda(cudaEventRecord(anchor_.get(), anchor_stream_), "cudaEventRecord");
  check_cuda(cudaEventSynchronize(anchor_.get()), "cudaEventSynchronize");
  anchor_seconds_ = clock_();
}

double Timeline::at(const std::shared_ptr<CUevent_st>& event) const {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, anchor_.get(), event.get()),
             "cudaEventElapsedTime");
  return anchor_seconds_ + static_cast<double>(milliseconds) * 1e-3;
}

void Timeline::add_stream(cudaStream_t stream) {
  streams_.push_back(stream);
  open_.emplace_back();
}

void Timeline::phase(Phase phase) {
  for (size_t s = 0; s < streams_.size(); ++s) close(static_cast<int32_t>(s));
  if ((phase == Phase::data) != (phase_ == Phase::data)) host_was(Activity::host);
  phase_ = phase;
}

void Timeline::before_op(int32_t stream, const char* name, int64_t bytes, int64_t order) {
  Open& o = open_[static_cast<size_t>(stream)];
  if (o.open && !detailed_) {
    o.span.bytes += bytes;
    return;
  }
  close(stream);
  o.span = begin(stream, Activity::compute, detailed_ ? name : "", bytes, order);
  o.open = true;
}

void Timeline::after_op(int32_t stream) {
  if (detailed_) close(stream);
}

Span Timeline::begin(int32_t stream, Activity activity, const char* name, int64_t bytes,
                     int64_t order) {
  close(stream);
  Span span;
  span.start = events_.get();
  span.end = events_.get();
  span.activity = activity;
  span.phase = phase_;
  span.stream = stream;
  span.name = name;
  span.bytes = bytes;
  span.order = order;
  check_cuda(cudaEventRecord(span.start.get(), streams_[static_cast<size_t>(stream)]),
             "cudaEventRecord");
  return span;
}

void Timeline::end(const Span& span) {
  check_cuda(cudaEventRecord(span.end.get(), streams_[static_cast<size_t>(span.stream)]),
             "cudaEventRecord");
  spans_.push_back(span);
}

void Timeline::close(int32_t stream) {
  Open& o = open_[static_cast<size_t>(stream)];
  if (!o.open) return;
  o.open = false;
  end(o.span);
}

void Timeline::host_waits() { host_was(Activity::host); }

void Timeline::host_goes_on() { host_since_ = clock_(); }

void Timeline::host_was(Activity activity) {
  const double now = clock_();
  if (activity == Activity::host && phase_ == Phase::data) activity = Activity::data;
  Interval interval;
  interval.start = host_since_;
  interval.end = now;
  interval.activity = activity;
  interval.phase = phase_;
  interval.stream = -1;
  if (now > host_since_) host_.push_back(interval);
  host_since_ = now;
}

Timeline::Shortest Timeline::durations() const {
  Shortest all;
  for (const Span& span : spans_) {
    if (span.communicator < 0) continue;
    const auto c = static_cast<size_t>(span.communicator);
    if (all.size() <= c) all.resize(c + 1);
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, span.start.get(), span.end.get()),
               "cudaEventElapsedTime");
    all[c].push_back(static_cast<double>(milliseconds) * 1e-3);
  }
  return all;
}

void Timeline::take(std::vector<Interval>& into, const Shortest& shortest) {
  host_was(Activity::host);
  into.insert(into.end(), host_.begin(), host_.end());
  host_.clear();
  std::vector<size_t> next(shortest.size(), 0);
  for (const Span& span : spans_) {
    Interval interval;
    interval.start = at(span.start);
    interval.end = std::max(interval.start, at(span.end));
    const auto c = static_cast<size_t>(span.communicator);
    if (span.communicator >= 0 && c < shortest.size() && next[c] < shortest[c].size())
      interval.start = std::max(interval.start, interval.end - shortest[c][next[c]++]);
    interval.activity = span.activity;
    interval.phase = span.phase;
    interval.stream = span.stream;
    interval.name = span.name;
    interval.group = span.group;
    interval.bytes = span.bytes;
    interval.order = span.order;
    into.push_back(interval);
  }
  spans_.clear();
  anchor();
}

}  // namespace moetwin
