#pragma once

namespace overtake {

// Cores this process may use.
unsigned available_cores();

}  // namespace overtake
