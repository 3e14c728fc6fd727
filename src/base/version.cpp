#include "base/version.h"

namespace overtake {

std::string_view version() { return OVERTAKE_VERSION; }

}  // namespace overtake
