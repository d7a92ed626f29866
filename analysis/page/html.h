#pragma once
// The page's own files and its data, as one file that opens without a network.

#include <json/value.h>

#include <string>

namespace moetwin {

/// `data`: what the page's script draws; its "title" and "subtitle" stand on top. The same data
/// give the same bytes.
std::string page_html(const std::string& title, const Json::Value& data);

}  // namespace moetwin
