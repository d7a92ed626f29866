#include "core/train/checkpoint/saver.h"

namespace moetwin {

bool Saver::due(int64_t step, bool last, bool early) const {
  if (early && writer_) return true;
  return config_.every_steps > 0 && (last || step % config_.every_steps == 0);
}

void Saver::save(const TrainingPosition& position) {
  const double now = context_.device.now();
  if (now < busy_until_) context_.device.host_work(busy_until_ - now, Activity::host);
  RankState state;
  state.rank = context_.device.properties().rank;
  state.position = position;
  state.parts = state_.owned();
  if (config_.write_bytes_per_second > 0) {
    const double seconds =
        static_cast<double>(state_.owned_bytes()) / config_.write_bytes_per_second;
    if (config_.async) {
      busy_until_ = context_.device.now() + seconds;
    } else {
      context_.device.host_work(seconds, Activity::host);
    }
  }
  if (writer_) writer_->add(std::move(state));
}

void Saver::end() {
  if (writer_) writer_->end_of_run();
}

}  // namespace moetwin
