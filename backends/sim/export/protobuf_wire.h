#pragma once
// Writes messages in protobuf's wire format (protobuf.dev/programming-guides/encoding): varints,
// 32- and 64-bit, and length-delimited fields. A trace needs no more of the library.

#include <cstdint>
#include <string>
#include <string_view>

namespace moetwin {

class WireMessage {
 public:
  void varint(int field, uint64_t value) {
    put(static_cast<uint64_t>(field) << 3);
    put(value);
  }
  void text(int field, std::string_view value) {
    put(static_cast<uint64_t>(field) << 3 | 2);
    put(value.size());
    bytes_.append(value);
  }
  void message(int field, const WireMessage& value) { text(field, value.bytes_); }
  /// `repeated uint64`, packed.
  template <class Values>
  void packed(int field, const Values& values) {
    if (values.empty()) return;
    WireMessage list;
    for (const uint64_t v : values) list.put(v);
    message(field, list);
  }
  /// As it stands in a file of several: its length before it.
  void append_to(std::string& file) const {
    WireMessage length;
    length.put(bytes_.size());
    file += length.bytes_;
    file += bytes_;
  }

 private:
  void put(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

}  // namespace moetwin
