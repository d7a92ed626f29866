#pragma once
// The files of analysis/page/assets and the chart library, as they were when this was built.

#include <string_view>

namespace moetwin::page_assets {

extern const std::string_view kTemplate;  ///< page.html, with {{title}}, {{style}}, {{data}}, ...
extern const std::string_view kStyle;
extern const std::string_view kScript;   ///< all scripts of ours, in order
extern const std::string_view kLibrary;  ///< d3, minified

}  // namespace moetwin::page_assets
