#include "core/scenario/python_literal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "core/base/error.h"

namespace moetwin {
namespace {

// Thrown where an expression is more than a literal; caught where the value can be left out.
struct NoLiteral {};

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_name(char c) { return is_name_start(c) || std::isdigit(static_cast<unsigned char>(c)); }

void append_utf8(std::string* out, uint32_t code) {
  if (code < 0x80) {
    *out += static_cast<char>(code);
  } else if (code < 0x800) {
    *out += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
  } else if (code < 0x10000) {
    *out += {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
             static_cast<char>(0x80 | (code & 0x3F))};
  } else {
    *out +=
        {static_cast<char>(0xF0 | (code >> 18 & 7)), static_cast<char>(0x80 | (code >> 12 & 0x3F)),
         static_cast<char>(0x80 | (code >> 6 & 0x3F)), static_cast<char>(0x80 | (code & 0x3F))};
  }
}

class Parser {
 public:
  Parser(const std::string& text, const std::string& name, PythonFile* file)
      : text_(text), name_(name), file_(file) {
    if (text_.compare(0, 3, "\xEF\xBB\xBF") == 0) at_ = 3;
  }

  void read_file() {
    while (true) {
      skip_space(true);
      if (at_ >= text_.size()) return;
      read_statement();
    }
  }

 private:
  int line_of(size_t position) const {
    return 1 + static_cast<int>(std::count(
                   text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
  }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  [[noreturn]] void fail(size_t position, const std::string& message) const {
    throw Error(ErrorClass::configuration,
                fmt::format("{}:{}: {}", name_, line_of(position), message));
  }

  void skip_space(bool newlines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || (c == '\n' && newlines)) {
        ++at_;
      } else if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
        at_ += peek(1) == '\n' ? 2 : 3;
      } else {
        return;
      }
    }
  }

  // Passes one string literal with its quotes (the prefix is already passed).
  void skip_string() {
    const size_t start = at_;
    const char quote = peek();
    const bool triple = peek(1) == quote && peek(2) == quote;
    at_ += triple ? 3 : 1;
    while (true) {
      if (at_ >= text_.size() || (!triple && peek() == '\n'))
        fail(start, "this string does not end");
      if (peek() == '\\') {
        at_ += 2;
      } else if (peek() == quote && (!triple || (peek(1) == quote && peek(2) == quote))) {
        at_ += triple ? 3 : 1;
        return;
      } else {
        ++at_;
      }
    }
  }

  // Passes source up to the end of the logical line, or, within brackets, up to a comma or closing
  // bracket of the same depth.
  std::string skip_source(bool in_brackets) {
    const size_t start = at_;
    std::vector<size_t> open;
    std::string out;
    while (at_ < text_.size()) {
      const char c = peek();
      const size_t before = at_;
      if (open.empty() &&
          (in_brackets ? c == ',' || c == '}' || c == ']' || c == ')' : c == '\n' || c == ';'))
        break;
      if (c == '#' || std::isspace(static_cast<unsigned char>(c)) || c == '\\') {
        skip_space(in_brackets || !open.empty());
        if (at_ == before) ++at_;
        if (!out.empty() && out.back() != ' ') out += ' ';
        continue;
      }
      if (c == '"' || c == '\'') {
        skip_string();
      } else {
        if (c == '(' || c == '[' || c == '{') open.push_back(at_);
        if ((c == ')' || c == ']' || c == '}') && !open.empty()) open.pop_back();
        ++at_;
      }
      out += text_.substr(before, at_ - before);
    }
    if (!open.empty()) fail(open.back(), fmt::format("this {} is not closed", text_[open.back()]));
    if (at_ == start && at_ < text_.size()) ++at_;  // a stray comma or bracket
    std::replace(out.begin(), out.end(), '\n', ' ');
    while (!out.empty() && out.back() == ' ') out.pop_back();
    if (!in_brackets && peek() == ';') ++at_;
    return out;
  }

  void read_statement() {
    const size_t start = at_;
    size_t margin = start;
    while (margin > 0 && (text_[margin - 1] == ' ' || text_[margin - 1] == '\t')) --margin;
    const bool indented = margin < start && (margin == 0 || text_[margin - 1] == '\n');
    std::string name;
    while (is_name(peek())) name += text_[at_++];
    skip_space(false);
    if (!name.empty() && is_name_start(name[0]) && !indented && peek() == ':') {  // x: dict = {...}
      const size_t colon = at_;
      while (at_ < text_.size() && peek() != '=' && peek() != '\n') ++at_;
      if (peek() != '=') at_ = colon;
    }
    if (!name.empty() && !indented && peek() == '=' && peek(1) != '=') {
      ++at_;
      if (read_assignment(name, start)) return;
    }
    at_ = start;
    const std::string text = skip_source(false);
    if (text.empty()) return;
    file_->unread.push_back(
        {line_of(start), "", text,
         name == "assert" ? "assertion, not executed" : "statement, not executed"});
  }

  bool read_assignment(const std::string& name, size_t start) {
    const size_t unread = file_->unread.size(), lines = file_->lines.size();
    try {
      skip_space(false);
      const Json::Value value = read_value(name, 0);
      skip_space(false);
      if (at_ < text_.size() && peek() != '\n' && peek() != ';') throw NoLiteral{};
      if (peek() == ';') ++at_;
      for (PythonAssignment& earlier : file_->assignments)
        if (earlier.name == name) {
          file_->unread.push_back({earlier.line, name, name + " = ...",
                                   fmt::format("assigned again on line {}", line_of(start))});
          earlier = {name, value, line_of(start)};
          return true;
        }
      file_->assignments.push_back({name, value, line_of(start)});
      return true;
    } catch (const NoLiteral&) {
      file_->unread.resize(unread);
      file_->lines.resize(lines);
      return false;
    }
  }

  Json::Value read_value(const std::string& path, int depth) {
    if (depth > 100) fail(at_, "nested too deep");
    file_->lines.push_back({path, line_of(at_)});
    const char c = peek();
    if (c == '{') return read_dict(path, depth);
    if (c == '[' || c == '(') return read_list(path, depth);
    if (c == '"' || c == '\'' || is_string_prefix()) return read_strings();
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '-' || c == '+' || c == '.')
      return read_number();
    std::string word;
    while (is_name(peek())) word += text_[at_++];
    if (word == "True") return true;
    if (word == "False") return false;
    if (word == "None") return {};
    throw NoLiteral{};
  }

  bool is_string_prefix() const {
    size_t n = 0;
    while (n < 2 && std::string("rRuU").find(peek(n)) != std::string::npos && peek(n)) ++n;
    return n > 0 && (peek(n) == '"' || peek(n) == '\'');
  }

  // An entry that is more than a literal is noted and left out.
  template <class Read>
  void entry(const std::string& path, char close, const Read& read) {
    const size_t start = at_, unread = file_->unread.size(), lines = file_->lines.size();
    try {
      read();
      skip_space(true);
      if (peek() != ',' && peek() != close) throw NoLiteral{};
    } catch (const NoLiteral&) {
      file_->unread.resize(unread);
      file_->lines.resize(lines);
      at_ = start;
      const int line = line_of(start);
      file_->unread.push_back({line, path, skip_source(true), "no literal"});
    }
  }

  Json::Value read_dict(const std::string& path, int depth) {
    const size_t start = at_++;
    Json::Value dict(Json::objectValue);
    while (true) {
      skip_space(true);
      if (at_ >= text_.size()) fail(start, "this { is not closed");
      if (peek() == '}') break;
      entry(path, '}', [&] {
        const size_t at_key = at_;
        Json::Value key = read_value(path, depth + 1);
        file_->lines.pop_back();
        skip_space(true);
        if (peek() != ':' || key.isObject() || key.isArray()) throw NoLiteral{};
        ++at_;
        skip_space(true);
        const std::string member = key.asString();
        const std::string inner = path + "." + member;
        Json::Value value;
        bool kept = true;
        const size_t before = file_->unread.size();
        entry(inner, '}', [&] { value = read_value(inner, depth + 1); });
        for (size_t i = before; i < file_->unread.size(); ++i)
          kept =
              kept && !(file_->unread[i].path == inner && file_->unread[i].reason == "no literal");
        if (!kept) return;
        if (dict.isMember(member))
          file_->unread.push_back({line_of(at_key), inner, dict[member].toStyledString(),
                                   "repeated key, the later value counts"});
        dict[member] = value;
      });
      skip_space(true);
      if (peek() == ',') ++at_;
    }
    ++at_;
    return dict;
  }

  Json::Value read_list(const std::string& path, int depth) {
    const size_t start = at_;
    const char close = text_[at_++] == '[' ? ']' : ')';
    Json::Value list(Json::arrayValue);
    bool comma = false;
    while (true) {
      skip_space(true);
      if (at_ >= text_.size()) fail(start, fmt::format("this {} is not closed", text_[start]));
      if (peek() == close) break;
      list.append(read_value(fmt::format("{}[{}]", path, list.size()), depth + 1));
      skip_space(true);
      if (peek() == ',') {
        comma = true;
        ++at_;
      } else if (peek() != close) {
        if (at_ >= text_.size()) continue;
        throw NoLiteral{};
      }
    }
    ++at_;
    // Parentheses around one value are not a tuple.
    if (close == ')' && list.size() == 1 && !comma) return list[0];
    return list;
  }

  Json::Value read_strings() {
    std::string all;
    bool more = true;
    while (more) {
      bool raw = false;
      while (is_name(peek())) raw = raw || peek() == 'r' || peek() == 'R', ++at_;
      all += read_string(raw);
      // Neighbouring literals are one string.
      const size_t end = at_;
      skip_space(true);
      more = peek() == '"' || peek() == '\'' || is_string_prefix();
      const bool new_line = std::find(text_.begin() + static_cast<std::ptrdiff_t>(end),
                                      text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                      '\n') != text_.begin() + static_cast<std::ptrdiff_t>(at_);
      if (!more && new_line) at_ = end;
    }
    return all;
  }

  std::string read_string(bool raw) {
    const size_t start = at_;
    const size_t quotes = peek(1) == peek() && peek(2) == peek() ? 3 : 1;
    skip_string();
    const std::string body = text_.substr(start + quotes, at_ - start - 2 * quotes);
    if (raw) return body;
    std::string out;
    for (size_t i = 0; i < body.size(); ++i) {
      if (body[i] != '\\' || i + 1 == body.size()) {
        out += body[i];
        continue;
      }
      const char c = body[++i];
      const size_t simple = std::string("\\'\"abfnrtv\n").find(c);
      if (simple != std::string::npos) {
        if (c != '\n') out += "\\'\"\a\b\f\n\r\t\v"[simple];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        uint32_t code = 0;
        const char* first = body.data() + i + 1;
        const char* last = first + std::min(digits, body.size() - i - 1);
        const auto [end, error] = std::from_chars(first, last, code, 16);
        if (error != std::errc() || end != first + digits || code > 0x10FFFF)
          fail(start, fmt::format("wrong escape \\{}", c));
        append_utf8(&out, code);
        i += digits;
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t n = 0;
        for (; n < 3 && i + n < body.size() && body[i + n] >= '0' && body[i + n] <= '7'; ++n)
          code = code * 8 + static_cast<uint32_t>(body[i + n] - '0');
        append_utf8(&out, code);
        i += n - 1;
      } else {
        out += {'\\', c};  // Python keeps both
      }
    }
    return out;
  }

  Json::Value read_number() {
    bool negative = false;
    while (peek() == '-' || peek() == '+') {
      negative ^= peek() == '-';
      ++at_;
      skip_space(false);
    }
    std::string digits;
    const bool prefixed =
        peek() == '0' && std::string("xXoObB").find(peek(1)) != std::string::npos && peek(1);
    while (is_name(peek()) || peek() == '.' ||
           (!prefixed && (peek() == '-' || peek() == '+') && !digits.empty() &&
            (digits.back() == 'e' || digits.back() == 'E'))) {
      if (peek() != '_') digits += peek();
      ++at_;
    }
    const char* last = digits.data() + digits.size();
    uint64_t magnitude = 0;
    const int base = !prefixed                        ? 10
                     : std::tolower(digits[1]) == 'x' ? 16
                     : std::tolower(digits[1]) == 'o' ? 8
                                                      : 2;
    const auto whole = std::from_chars(digits.data() + (prefixed ? 2 : 0), last, magnitude, base);
    if (whole.ec == std::errc() && whole.ptr == last) {
      if (!negative) {
        if (magnitude <= INT64_MAX) return Json::Int64(magnitude);
        return Json::UInt64(magnitude);
      }
      if (magnitude <= INT64_MAX) return -Json::Int64(magnitude);
      throw NoLiteral{};
    }
    double value = 0;
    const auto real = std::from_chars(digits.data(), last, value);
    if (prefixed || real.ec != std::errc() || real.ptr != last || digits.empty()) throw NoLiteral{};
    return negative ? -value : value;
  }

  const std::string& text_;
  const std::string& name_;
  PythonFile* file_;
  size_t at_ = 0;
};

}  // namespace

PythonFile read_python_literals(const std::string& text, const std::string& name) {
  PythonFile file;
  Parser(text, name, &file).read_file();
  return file;
}

}  // namespace moetwin
