#include "models/onnx/external.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"

namespace overtake::onnx {
namespace {

namespace fs = std::filesystem;

bool is_inside(const fs::path& file, const fs::path& folder) {
  const auto [end, ignored] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return end == folder.end();
}

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

}  // namespace

// The file must lie, links followed, in the folder of the model or in the folder that the model is a link into: caches
// of downloaded models keep all their files elsewhere and link to them.
fs::path ExternalData::locate(std::string_view location, const std::string& where) const {
  const fs::path relative(location);
  const bool climbs = std::any_of(relative.begin(), relative.end(), [](const fs::path& part) { return part == ".."; });
  if (location.empty() || location.find('\0') != location.npos || relative.is_absolute() || climbs) {
    fail_user("{}: its data is in '{}', which is no place below the folder of the model; export the model again", where,
              printable_name(location));
  }
  const fs::path path = folder_of(model_) / relative;
  std::error_code error;
  const fs::path found = fs::canonical(path, error);
  if (error || !fs::is_regular_file(found, error)) {
    fail_user("{}: its data is in {}, which is not there or no file; put it beside the model", where,
              printable_name(path.string()));
  }
  const fs::path folder = fs::canonical(folder_of(model_), error);
  const fs::path linked_model = fs::weakly_canonical(model_, error);
  if (!is_inside(found, folder) && (linked_model.empty() || !is_inside(found, folder_of(linked_model)))) {
    fail_user("{}: its data is in {}, a link out of the folder of the model; put the file itself there", where,
              printable_name(path.string()));
  }
  return found;
}

ExternalData::Part ExternalData::read(std::string_view location, std::int64_t offset, std::int64_t length,
                                      const std::string& where) {
  const fs::path path = locate(location, where);
  std::shared_ptr<const std::string>& content = files_[path];
  if (content == nullptr) {
    content = std::make_shared<const std::string>(overtake::read_file(path));
    total_bytes_ += std::ssize(*content);
  }
  const std::int64_t size = std::ssize(*content);
  if (offset < 0 || length < 0 || offset > size || length > size - offset) {
    fail_user("{}: its data is {} bytes from byte {} of {}, which has {}; the file is damaged or of another model",
              where, length, offset, path.string(), size);
  }
  return {
      std::as_bytes(std::span(*content)).subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(length)),
      content};
}

}  // namespace overtake::onnx
