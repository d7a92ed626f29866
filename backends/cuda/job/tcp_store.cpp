#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "backends/cuda/job/hello.h"
#include "backends/cuda/job/rendezvous.h"
#include "backends/cuda/job/socket.h"
#include "core/base/bytes.h"

namespace moetwin {
namespace {

constexpr double kAnswerSeconds = 3;  ///< for a greeting; a store answers at once
constexpr double kSlack = 10;         ///< on top of what a request may take

class TcpStore : public Store {
 public:
  TcpStore(Socket socket, std::string place) : socket_(std::move(socket)), place_(place) {}

 protected:
  std::string exchange(const std::string& request, double seconds) override {
    std::string reply;
    if (send_frame(socket_, request, kSlack) && receive_frame(socket_, reply, seconds + kSlack))
      return reply;
    throw Error(
        ErrorClass::fault,
        fmt::format("lost rank 0 at {}: its process has ended or its node cannot be reached",
                    place_));
  }

 private:
  Socket socket_;
  std::string place_;
};

// Greets whoever listens; an empty socket and `error` when it is no store of this job.
Socket greet(const Launch& launch, int port, bool watches, std::string& error) {
  Socket socket = connect_to(launch.address, port, kAnswerSeconds, error);
  if (!socket) return socket;
  Hello hello;
  hello.job = launch.job;
  hello.world = launch.world;
  hello.rank = launch.rank;
  hello.watches = watches;
  hello.process = fmt::format("pid {} on {}", static_cast<int>(::getpid()), host_name());
  std::string reply;
  bool answered = false;
  try {
    answered = send_frame(socket, hello.bytes(), kAnswerSeconds) &&
               receive_frame(socket, reply, kAnswerSeconds);
  } catch (const Error&) {
    answered = true;  // bytes that are no frame
  }
  if (!answered) {
    error = "something listens there but does not answer as moetwin does";
    return Socket();
  }
  if (reply.rfind(kHelloMagic, 0) != 0) {
    error = "something else than moetwin answers there";
    return Socket();
  }
  const std::string refusal = reply.substr(std::string(kHelloMagic).size());
  if (refusal.empty()) return socket;
  if (refusal == kOtherJob) {
    error = "rank 0 of another job listens there";
    return Socket();
  }
  throw Error(ErrorClass::configuration, refusal);
}

}  // namespace

std::unique_ptr<Store> connect_store(const Launch& launch, double seconds, bool watches) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::string error;
  for (;;) {
    const int first = launch.more_ports ? launch.port + 1 : launch.port;
    for (int port = first; port <= launch.port + launch.more_ports; ++port)
      if (Socket socket = greet(launch, port, watches, error))
        return std::make_unique<TcpStore>(std::move(socket),
                                          fmt::format("{}:{}", launch.address, port));
    if (std::chrono::steady_clock::now() > end) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  throw Error(
      ErrorClass::fault,
      fmt::format(
          "rank {} could not reach rank 0 at {}:{}{} within {:.3g} s: {}. MASTER_ADDR "
          "must be a name or address of the node with rank 0 that this node can "
          "reach, and the port must be the same on all ranks and open",
          launch.rank, launch.address, launch.port,
          launch.more_ports ? fmt::format(" (or the {} ports after it)", launch.more_ports) : "",
          seconds, error));
}

}  // namespace moetwin
