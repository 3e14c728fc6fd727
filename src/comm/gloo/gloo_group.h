#pragma once
// Ranks that are processes, on one host or many, over TCP by gloo.

#include <filesystem>

#include "comm/group.h"
#include "comm/store.h"

namespace overtake {

struct GlooOptions {
  std::filesystem::path folder;  // that all ranks see; they meet in `folder / job`
  std::string job;               // its own for every run and every group of ranks
  int rank = 0, size = 1;
  std::string interface;              // whose address others can reach, like eth0; or
  std::string address = "127.0.0.1";  // an address or name of this host
  std::string identity;               // what all ranks must have in common; see roll_call.h
  int window = 16;                    // chunks per link that may be under way at most; see pace.h
  GroupOptions group;
};

// Whether this build has gloo.
bool has_gloo();

// Returns when all ranks are connected. UserError when they do not fit together or this build has no gloo, CommError
// when one does not come.
std::unique_ptr<Group> make_gloo_group(const GlooOptions& options);
// The same, in a store of this job's own instead of `folder / job`, which are not looked at. It is not needed after
// that.
std::unique_ptr<Group> make_gloo_group(const GlooOptions& options, Store& store);

}  // namespace overtake
