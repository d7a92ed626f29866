#include "analysis/page/html.h"

#include <json/writer.h>

#include <string_view>

#include "analysis/page/assets.h"
#include "core/base/error.h"

namespace moetwin {

namespace {

std::string escaped(const std::string& text) {
  std::string safe;
  for (char c : text)
    safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return safe;
}

/// JSON that may stand inside a script element: no "<" can end it.
std::string inline_json(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  builder["precision"] = 7;
  const std::string text = Json::writeString(builder, value);
  std::string safe;
  safe.reserve(text.size());
  for (char c : text)
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  return safe;
}

void replace(std::string& text, const std::string& name, std::string_view with) {
  const std::string place = "{{" + name + "}}";
  const size_t at = text.find(place);
  require(at != text.npos, "the page's template has every place");
  text.replace(at, place.size(), with);
}

}  // namespace

std::string page_html(const std::string& title, const Json::Value& data) {
  std::string page(page_assets::kTemplate);
  // What comes of files last, so that nothing in it can be taken for a place of the template.
  replace(page, "style", page_assets::kStyle);
  replace(page, "library", page_assets::kLibrary);
  replace(page, "script", page_assets::kScript);
  replace(page, "data", inline_json(data));
  replace(page, "title", escaped(title));
  return page;
}

}  // namespace moetwin
