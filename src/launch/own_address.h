#pragma once
// Which of this host's addresses others use.

#include <optional>
#include <string>

namespace overtake {

// The address that packets to `host`, a name or address, leave from; nothing is sent. Nothing where there is no way to
// it, or only the loopback, which others cannot use.
std::optional<std::string> own_address_towards(const std::string& host);

}  // namespace overtake
