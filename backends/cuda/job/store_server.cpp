#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <thread>

#include "backends/cuda/job/hello.h"
#include "backends/cuda/job/rendezvous.h"
#include "backends/cuda/job/socket.h"

namespace moetwin {

// One thread: takes what comes, hands whole requests to the state, sends its replies.
class StoreServer::Loop {
 public:
  Loop(const Launch& launch, StoreSettings settings)
      : job_(launch.job), world_(settings.world), state_(std::move(settings)) {
    std::string error;
    const int first = launch.more_ports ? launch.port + 1 : launch.port;
    for (int port = first; port <= launch.port + launch.more_ports && !listener_; ++port)
      listener_ = listen_at(port, error);
    if (!listener_)
      throw Error(ErrorClass::configuration,
                  fmt::format("rank 0 cannot listen at port {} (MASTER_PORT or "
                              "distributed_config.master_port) on {}: {}. Choose another port, the "
                              "same on all ranks",
                              launch.port, host_name(), error));
    port_ = port_of(listener_);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
      throw Error(ErrorClass::fault, "no pipe for the store");
    wake_read_ = Socket(ends[0]);
    wake_write_ = Socket(ends[1]);
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    closing_ = true;
    const char byte = 0;
    [[maybe_unused]] const ssize_t n = ::write(wake_write_.file(), &byte, 1);
    thread_.join();
  }

  int port() const { return port_; }

 private:
  struct Client {
    Socket socket;
    bool greeted = false, closing = false;
    int64_t rank = -1;
    std::string in, out;
  };

  void run() {
    double patience = 2;  // for clients that are still there when the server ends
    while (!closing_ || (!clients_.empty() && patience > 0)) {
      const double next = state_.tick();
      std::vector<pollfd> polls = {{listener_.file(), POLLIN, 0}, {wake_read_.file(), POLLIN, 0}};
      std::vector<uint64_t> ids = {0, 0};
      for (auto& [id, client] : clients_) {
        const short events = client.out.empty() ? POLLIN : POLLIN | POLLOUT;
        polls.push_back({client.socket.file(), events, 0});
        ids.push_back(id);
      }
      if (closing_) {
        polls[0].events = polls[1].events = 0;
        patience -= 0.1;
      }
      ::poll(polls.data(), polls.size(), closing_ ? 100 : static_cast<int>(next * 1000) + 1);
      if (polls[0].revents & POLLIN) accept();
      for (size_t i = 2; i < polls.size(); ++i) {
        const auto it = clients_.find(ids[i]);
        if (it == clients_.end() || !polls[i].revents) continue;
        if (!serve(it->first, it->second)) {
          if (it->second.rank >= 0) state_.gone(it->second.rank);
          clients_.erase(ids[i]);
        }
      }
    }
  }

  void accept() {
    for (;;) {
      Socket socket(::accept4(listener_.file(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) return;
      clients_[++last_id_].socket = std::move(socket);
    }
  }

  // False when the client is gone.
  bool serve(uint64_t id, Client& client) {
    char piece[1 << 16];
    for (;;) {
      const ssize_t n = ::recv(client.socket.file(), piece, sizeof piece, 0);
      if (n > 0) {
        client.in.append(piece, static_cast<size_t>(n));
        continue;
      }
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
      return false;
    }
    try {
      std::string message;
      while (take_frame(client.in, message)) {
        if (!client.greeted)
          greet(client, message);
        else
          state_.handle(message, [this, id](const std::string& reply) { answer(id, reply); });
      }
    } catch (const Error&) {
      return false;  // not one of ours
    }
    return flush(client) && !(client.closing && client.out.empty());
  }

  void greet(Client& client, const std::string& message) {
    Hello hello;
    std::string refusal;
    if (!hello.read(message))
      refusal = "not a moetwin process";
    else if (hello.job != job_)
      refusal = kOtherJob;
    else if (hello.world != world_)
      refusal = fmt::format(
          "rank {} ({}) was started in a world of {}, rank 0 in one of {}: start "
          "all ranks with the same launcher and scenario",
          hello.rank, hello.process, hello.world, world_);
    else if (const auto before = here_.find({hello.rank, hello.watches}); before != here_.end())
      refusal = fmt::format("two processes have rank {}: {} and {}. Give each its own RANK",
                            hello.rank, before->second, hello.process);
    client.out += frame(kHelloMagic + refusal);
    client.greeted = true;
    client.closing = !refusal.empty();
    if (client.closing) return;
    here_[{hello.rank, hello.watches}] = hello.process;
    client.rank = hello.rank;
    if (!hello.watches) state_.join(hello.rank, hello.process);
  }

  void answer(uint64_t id, const std::string& reply) {
    const auto it = clients_.find(id);
    if (it == clients_.end()) return;
    it->second.out += frame(reply);
    flush(it->second);
  }

  static bool flush(Client& client) {
    while (!client.out.empty()) {
      const ssize_t n =
          ::send(client.socket.file(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
      if (n > 0)
        client.out.erase(0, static_cast<size_t>(n));
      else
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    }
    return true;
  }

  const std::string job_;
  const int64_t world_;
  StoreState state_;
  Socket listener_, wake_read_, wake_write_;
  int port_ = 0;
  std::map<uint64_t, Client> clients_;
  std::map<std::pair<int64_t, bool>, std::string> here_;
  uint64_t last_id_ = 0;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

StoreServer::StoreServer(const Launch& launch, StoreSettings settings)
    : loop_(std::make_unique<Loop>(launch, std::move(settings))) {}
StoreServer::~StoreServer() = default;
int StoreServer::port() const { return loop_->port(); }

}  // namespace moetwin
