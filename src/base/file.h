#pragma once
// Files, read whole or written so that a reader sees the old content or the new, never a part.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace overtake {

// The whole content of a file; a user error with the path and the reason otherwise.
std::string read_file(const std::filesystem::path& path);

// This program's folder in the user's cache, $XDG_CACHE_HOME/overtake or ~/.cache/overtake; empty if neither variable
// is set. It need not exist.
std::filesystem::path user_cache_folder();

// Creates a folder and those above it, durably. It is fine if it exists already.
void create_folders(const std::filesystem::path& folder);

// For before long work: creates the folders above `path` and proves, by creating and removing a file, that `path` could
// be written. Whatever is at `path` is left as it is.
void check_writable(const std::filesystem::path& path);

// A file written beside its destination (".partial-..." appended) and moved there by commit(), both made durable.
// Without a commit the destination keeps what it had. A destination that is a device or a pipe is written directly.
class AtomicFile {
 public:
  // The folder of `destination` must exist.
  explicit AtomicFile(std::filesystem::path destination);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  void commit();
  // As commit(), under another name in the same folder: for names that depend on the content.
  void commit_as(const std::string& file_name);

 private:
  void close_durably();

  std::filesystem::path destination_;
  std::filesystem::path written_path_;  // the temporary, or the destination itself when `direct_`
  int descriptor_ = -1;
  bool direct_ = false;
};

// Replaces the content of `path` at once.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace overtake
