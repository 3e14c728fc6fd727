#include "report/html_page.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace overtake {
namespace {

// Nothing inside a script element may look like its end; "<" as an escape cannot.
std::string inside_script(const nlohmann::json& data) {
  std::string out;
  for (const char c : data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

void fill(std::string& page, std::string_view place, std::string_view content) {
  const std::size_t at = page.find(place);
  OVERTAKE_CHECK(at != std::string::npos, "the page has no place for {}", place);
  page.replace(at, place.size(), content);
}

}  // namespace

std::string html_page(const PageParts& parts, const nlohmann::json& data) {
  std::string page(parts.frame);
  fill(page, "/*style*/", parts.style);
  fill(page, "/*script*/", parts.script);
  fill(page, "/*data*/", inside_script(data));
  return page;
}

}  // namespace overtake
