#pragma once
// Pages that need nothing else: no network, no other files. A page is a fixed frame, style and script around data.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace overtake {

struct PageParts {
  std::string_view frame, style, script;
};

// From src/report/page/; the build puts them into the program (cmake/pages.cmake).
extern const PageParts kTimelinePage, kComparisonPage;

std::string html_page(const PageParts& parts, const nlohmann::json& data);

}  // namespace overtake
