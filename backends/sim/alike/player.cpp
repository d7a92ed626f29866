#include "backends/sim/alike/player.h"

#include "backends/sim/alike/alike.h"
#include "core/record/profile_schedule.h"

namespace moetwin {

void Player::play(const TapeSegment& segment) {
  using Kind = TapeEntry::Kind;
  for (const TapeEntry& entry : segment.entries) {
    const Stream stream{entry.stream};
    const auto index = static_cast<size_t>(entry.index);
    switch (entry.kind) {
      case Kind::stream:
        device_.stream(segment.names[index]);
        break;
      case Kind::launch: {
        const TapeSegment::Launch& launch = segment.launches[index];
        PricedLaunch priced = launch.priced;
        priced.kernels = {segment.kernels.data() + launch.first, launch.count};
        device_.launch(priced, stream);
        break;
      }
      case Kind::record: {
        const Event event = device_.record(stream);
        if (first_event_.id < 0) first_event_ = event;
        break;
      }
      case Kind::wait:
        device_.wait(stream, {first_event_.id + entry.index});
        break;
      case Kind::synchronize:
        device_.synchronize(stream);
        break;
      case Kind::write:
        device_.write_bytes(entry.bytes, stream);
        break;
      case Kind::read:
        device_.read_bytes(entry.bytes, stream);
        break;
      case Kind::host_work:
        device_.host_work(entry.seconds, entry.activity);
        break;
      case Kind::phase:
        device_.phase(entry.phase, "");
        break;
      case Kind::communicator: {
        Joined joined{};
        const TapeSegment::GroupMade& made = segment.groups[index];
        joined.state = &device_.join(counterpart(grid_, leader_, made.group, device_.rank()),
                                     made.name, joined.index);
        joined_.push_back(joined);
        break;
      }
      case Kind::collective: {
        const TapeSegment::Collective& c = segment.collectives[index];
        const Joined& joined = joined_[static_cast<size_t>(c.communicator)];
        device_.collective(*joined.state, joined.index, c.call, stream);
        break;
      }
      case Kind::now:
        readings_.push_back(device_.now());
        break;
      case Kind::take_profile:
        profile_ = device_.take_profile(sink_ && sink_->wants_detail(entry.index) &&
                                        shows_ops(scenario_, entry.index, device_.rank()));
        break;
      case Kind::add:
        add(segment.steps[index]);
        break;
    }
  }
}

void Player::add(RankStep step) {
  step_ = step.step;
  step.rank = device_.rank();
  step.start = readings_[static_cast<size_t>(step.start)];
  step.end = readings_[static_cast<size_t>(step.end)];
  step.profile = std::move(profile_);
  profile_ = {};
  if (sink_) sink_->add(std::move(step));
}

}  // namespace moetwin
