#pragma once
// Files that a command is asked to write. None takes the place of another without --overwrite, and what is in one shows
// in its ending: no page is called .pdf, and no weights take the name of a model.

#include <string>
#include <string_view>
#include <vector>

namespace overtake {

struct OutputKind {
  std::string_view what;
  std::vector<std::string_view> endings;
};

inline const OutputKind kPage{"a page of HTML", {".html", ".htm"}};
inline const OutputKind kTimeline{"a timeline in JSON", {".json"}};
inline const OutputKind kProfile{"a measurement in JSON", {".json"}};
inline const OutputKind kPlanFile{"a plan", {".plan"}};
inline const OutputKind kSpecFile{"a run in TOML", {".toml"}};
inline const OutputKind kWeights{"weights in the safetensors format", {".safetensors"}};

struct OutputFile {
  std::string_view flag;  // "--trace"
  std::string path;       // empty: not asked for
  const OutputKind& kind;
};

// For before long work: a user error where it could not be written, has the ending of something else, or is there
// already. Devices and pipes are written whatever they are called.
void check_output(const OutputFile& file, bool overwrites);

}  // namespace overtake
