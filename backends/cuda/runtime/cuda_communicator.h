#pragma once
// A group's handle on one rank: hands every call to its backend.

#include <string>

#include "backends/cuda/runtime/nccl_group.h"

namespace moetwin {

class CudaBackend;

class CudaCommunicator : public Communicator {
 public:
  /// `label` tells two communicators of one name apart in messages, `key` in the store.
  CudaCommunicator(const Group& group, int64_t rank_in_group, const std::string& name,
                   const std::string& label, const std::string& key, CudaBackend& backend);
  ~CudaCommunicator() override;

 protected:
  void start(const CollectiveCall& call, Stream stream) override;

 private:
  CudaBackend& backend_;
  NcclGroup nccl_;
};

/// Compares what the members are about to call, over the job's store: returns when all members have
/// come and agree (a send or receive does not wait for its partner). Otherwise fails the job.
void compare_before(Job& job, NcclGroup& group, const CollectiveCall& call);

}  // namespace moetwin
