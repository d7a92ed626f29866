#pragma once
// A group's handle on one rank: hands every call to its backend.

#include "backends/sim/runtime/sim_backend.h"

namespace moetwin {

class SimCommunicator : public Communicator {
 public:
  SimCommunicator(const Group& group, int64_t rank_in_group, const std::string& name,
                  SimBackend& backend, GroupState& state)
      : Communicator(group, rank_in_group, name), backend_(backend), state_(state) {}

 protected:
  void start(const CollectiveCall& call, Stream stream) override {
    backend_.collective(state_, rank(), call, stream);
  }

 private:
  SimBackend& backend_;
  GroupState& state_;
};

}  // namespace moetwin
