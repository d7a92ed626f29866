#include "core/record/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "core/base/units.h"
#include "core/record/bars.h"

namespace moetwin {

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

Progress::Progress(int64_t steps, std::ostream& out, bool terminal, std::function<double()> clock)
    : steps_(steps), out_(out), terminal_(terminal), clock_(std::move(clock)) {}

std::string Progress::line(const StepRow& row, double now) {
  const int digits = static_cast<int>(std::to_string(steps_).size());
  std::string text = fmt::format("step {:>{}}/{}", row.step, digits, steps_);
  if (terminal_) {
    const double share = static_cast<double>(row.step) / static_cast<double>(steps_);
    text += " " + left(bar(share, 10, {}), 10);
  }
  text += std::isfinite(row.loss) ? fmt::format("  loss {:.4f}", row.loss) : "  loss -";
  text += fmt::format("  {} tokens/s", format_count(std::round(row.tokens_per_second())));
  text += fmt::format("  step {}", format_seconds(row.seconds()));
  if (!row.layers.empty())
    text += fmt::format("  imbalance {:.2f}  dropped {:.1f}%", row.routing.imbalance_experts,
                        100 * row.routing.dropped_share);
  if (std::isfinite(row.churn)) churn_ = row.churn;
  if (std::isfinite(churn_)) text += fmt::format("  churn {:.1f}%", 100 * churn_);
  // Steps vary little, so the mean of those seen foretells the others.
  if (row.step > first_step_ && row.step < steps_) {
    const double each = (now - first_time_) / static_cast<double>(row.step - first_step_);
    text += "  ETA " + duration_text(each * static_cast<double>(steps_ - row.step));
  }
  return text;
}

void Progress::show(const StepRow& row) {
  const double now = clock_();
  if (first_step_ == 0) first_step_ = row.step, first_time_ = now;
  last_ = line(row, now);
  if (!terminal_) {
    out_ << last_ << "\n" << std::flush;
    return;
  }
  if (live_ && row.step < steps_ && now - shown_at_ < 0.1) return;
  write_over(now);
}

void Progress::write_over(double now) {
  shown_at_ = now;
  live_ = true;
  out_ << "\r" << last_ << "\x1b[K" << std::flush;
}

void Progress::within_first(double share) {
  if (first_step_ > 0 || share <= 0) return;
  const double now = clock_();
  if (terminal_ ? now < 1 || (live_ && now - shown_at_ < 0.1) : now < next_within_) return;
  share = std::min(share, 0.99);  // the share is an estimate, and the step is not done
  last_ = fmt::format("step 1/{}  {:.0f}% of it  ETA {}", steps_, 100 * share,
                      duration_text(now / share * static_cast<double>(steps_) - now));
  if (terminal_) return write_over(now);
  next_within_ = 2 * now;
  out_ << last_ << "\n" << std::flush;
}

void Progress::say(const std::string& text) {
  if (!terminal_) {
    out_ << text << "\n" << std::flush;
    return;
  }
  out_ << "\r" << text << "\x1b[K\n" << last_ << std::flush;
  live_ = true;
}

void Progress::finish() {
  if (live_) out_ << "\r" << last_ << "\x1b[K\n" << std::flush;
  live_ = false;
}

}  // namespace moetwin
