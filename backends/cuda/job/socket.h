#pragma once
// TCP sockets that close themselves, and frames (a length and bytes) on them.

#include <cstddef>
#include <string>

namespace moetwin {

class Socket {
 public:
  explicit Socket(int file = -1) : file_(file) {}
  ~Socket();
  Socket(Socket&& other) noexcept : file_(other.file_) { other.file_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  int file() const { return file_; }
  explicit operator bool() const { return file_ >= 0; }

 private:
  int file_;
};

inline constexpr size_t kMostFrameBytes = size_t{1} << 30;

/// Listens on all addresses of this machine; port 0: any free one. An empty socket when the port is
/// in use; `error` then says why in words.
Socket listen_at(int port, std::string& error);
int port_of(const Socket& socket);
/// Connects within `seconds`; an empty socket and `error` when it could not.
Socket connect_to(const std::string& host, int port, double seconds, std::string& error);

/// Length and bytes. False when the other side is gone or `seconds` passed.
bool send_frame(const Socket& socket, const std::string& bytes, double seconds);
/// Throws Error(fault) on a frame longer than kMostFrameBytes.
bool receive_frame(const Socket& socket, std::string& bytes, double seconds);
/// As it stands before the bytes of a frame.
std::string frame(const std::string& bytes);
/// Takes one whole frame from the front of `buffer`, if there is one.
bool take_frame(std::string& buffer, std::string& bytes);

std::string host_name();

}  // namespace moetwin
