#pragma once
// How a job's processes find the store: rank 0 listens at MASTER_ADDR:MASTER_PORT, all connect.

#include <functional>
#include <memory>
#include <string>

#include "backends/cuda/job/launch.h"
#include "backends/cuda/job/store.h"
#include "backends/cuda/job/store_state.h"

namespace moetwin {

/// The store of a job whose ranks are all in this process.
std::unique_ptr<Store> make_local_store(StoreSettings settings);

/// Serves the store over TCP from a thread of its own.
class StoreServer {
 public:
  /// Listens at the launch's port or, after torchrun, at the first free one behind it. Throws
  /// Error(configuration) when the port is in use.
  StoreServer(const Launch& launch, StoreSettings settings);
  /// Waits a little for clients that are still connected.
  ~StoreServer();
  int port() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

/// Connects to the store within `seconds`. Throws Error(fault): nobody listens there;
/// Error(configuration): something else does, or two processes have the same rank.
/// `watches`: the second connection of a rank, for its watchdog.
std::unique_ptr<Store> connect_store(const Launch& launch, double seconds, bool watches);

}  // namespace moetwin
