#include "base/available_cores.h"

#include <sched.h>

#include <algorithm>

namespace overtake {

unsigned available_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&allowed)));
}

}  // namespace overtake
