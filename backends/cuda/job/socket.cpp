#include "backends/cuda/job/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "core/base/error.h"

namespace moetwin {
namespace {

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  explicit Deadline(double seconds)
      : at_(Clock::now() +
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  int milliseconds() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(at_ - Clock::now());
    return static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, 1'000'000));
  }

 private:
  Clock::time_point at_;
};

bool ready(int file, short events, const Deadline& deadline) {
  pollfd p = {file, events, 0};
  for (;;) {
    const int wait = deadline.milliseconds();
    const int n = ::poll(&p, 1, wait);
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

void set_options(int file) {
  const int on = 1, milliseconds = 10'000;
  ::setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(file, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(file, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
  ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) | O_NONBLOCK);
  ::fcntl(file, F_SETFD, FD_CLOEXEC);
}

}  // namespace

Socket::~Socket() {
  if (file_ >= 0) ::close(file_);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

Socket listen_at(int port, std::string& error) {
  for (const int family : {AF_INET6, AF_INET}) {
    Socket socket(::socket(family, SOCK_STREAM, 0));
    if (!socket) continue;
    const int on = 1, off = 0;
    ::setsockopt(socket.file(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in6 six = {};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(static_cast<uint16_t>(port));
    six.sin6_addr = in6addr_any;
    sockaddr_in four = {};
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<uint16_t>(port));
    if (family == AF_INET6)
      ::setsockopt(socket.file(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const int bound =
        family == AF_INET6
            ? ::bind(socket.file(), reinterpret_cast<const sockaddr*>(&six), sizeof six)
            : ::bind(socket.file(), reinterpret_cast<const sockaddr*>(&four), sizeof four);
    if (bound == 0 && ::listen(socket.file(), 1024) == 0) {
      set_options(socket.file());
      return socket;
    }
    error = std::strerror(errno);
    if (errno == EADDRINUSE) break;
  }
  return Socket();
}

int port_of(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  ::getsockname(socket.file(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

Socket connect_to(const std::string& host, int port, double seconds, std::string& error) {
  const Deadline deadline(seconds);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) {
    error = std::string("the name cannot be resolved: ") + ::gai_strerror(status);
    return Socket();
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const addrinfo* a = found; a; a = a->ai_next) {
    Socket socket(::socket(a->ai_family, a->ai_socktype, a->ai_protocol));
    if (!socket) continue;
    set_options(socket.file());
    int failed = 0;
    if (::connect(socket.file(), a->ai_addr, a->ai_addrlen) != 0) failed = errno;
    if (failed == EINPROGRESS) {
      socklen_t length = sizeof failed;
      if (!ready(socket.file(), POLLOUT, deadline))
        failed = ETIMEDOUT;
      else
        ::getsockopt(socket.file(), SOL_SOCKET, SO_ERROR, &failed, &length);
    }
    if (failed == 0) return socket;
    error = std::strerror(failed);
  }
  return Socket();
}

std::string frame(const std::string& bytes) {
  uint64_t length = bytes.size();
  std::string framed(reinterpret_cast<const char*>(&length), sizeof length);
  return framed + bytes;
}

bool take_frame(std::string& buffer, std::string& bytes) {
  uint64_t length = 0;
  if (buffer.size() < sizeof length) return false;
  std::memcpy(&length, buffer.data(), sizeof length);
  if (length > kMostFrameBytes)
    throw Error(ErrorClass::fault, "a message between processes is not moetwin's");
  if (buffer.size() < sizeof length + length) return false;
  bytes = buffer.substr(sizeof length, length);
  buffer.erase(0, sizeof length + length);
  return true;
}

bool send_frame(const Socket& socket, const std::string& bytes, double seconds) {
  const Deadline deadline(seconds);
  const std::string framed = frame(bytes);
  for (size_t sent = 0; sent < framed.size();) {
    const ssize_t n =
        ::send(socket.file(), framed.data() + sent, framed.size() - sent, MSG_NOSIGNAL);
    if (n > 0)
      sent += static_cast<size_t>(n);
    else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!ready(socket.file(), POLLOUT, deadline)) return false;
    } else {
      return false;
    }
  }
  return true;
}

bool receive_frame(const Socket& socket, std::string& bytes, double seconds) {
  const Deadline deadline(seconds);
  std::string buffer;
  char piece[1 << 16];
  while (!take_frame(buffer, bytes)) {
    const ssize_t n = ::recv(socket.file(), piece, sizeof piece, 0);
    if (n > 0)
      buffer.append(piece, static_cast<size_t>(n));
    else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!ready(socket.file(), POLLIN, deadline)) return false;
    } else {
      return false;
    }
  }
  return true;
}

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace moetwin
