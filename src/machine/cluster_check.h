#pragma once
// What must hold between the sections of a machine file: names that are known, links that join all devices.

#include <string>
#include <vector>

#include "overtake/cluster.h"

namespace overtake {

// In which line of the file each began.
struct ClusterLines {
  std::vector<int> nodes, switches, links, tori;
};

// A user error, with the file's name and the line, where the cluster is not whole.
void check_cluster(const Cluster& cluster, const ClusterLines& lines, const std::string& where);

}  // namespace overtake
