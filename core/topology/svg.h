#pragma once
// A few SVG elements, collected as text.

#include <fmt/format.h>

#include <string>

namespace moetwin {

class Svg {
 public:
  void rect(double x, double y, double w, double h, double radius, const std::string& style) {
    body_ +=
        fmt::format("<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" rx=\"{:g}\" {}/>\n",
                    x, y, w, h, radius, style);
  }
  void line(double x1, double y1, double x2, double y2, const std::string& style) {
    body_ += fmt::format("<line x1=\"{:g}\" y1=\"{:g}\" x2=\"{:g}\" y2=\"{:g}\" {}/>\n", x1, y1, x2,
                         y2, style);
  }
  void path(const std::string& d, const std::string& style) {
    body_ += fmt::format("<path d=\"{}\" {}/>\n", d, style);
  }
  void text(double x, double y, const std::string& content, const std::string& style) {
    body_ +=
        fmt::format("<text x=\"{:g}\" y=\"{:g}\" {}>{}</text>\n", x, y, style, escaped(content));
  }
  /// The whole document, `head` standing first (style rules).
  std::string document(double width, double height, const std::string& title,
                       const std::string& head) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" viewBox=\"0 0 "
        "{0:g} {1:g}\" role=\"img\">\n<title>{2}</title>\n{3}{4}</svg>\n",
        width, height, escaped(title), head, body_);
  }

 private:
  static std::string escaped(const std::string& text) {
    std::string out;
    for (char c : text)
      out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
    return out;
  }
  std::string body_;
};

}  // namespace moetwin
