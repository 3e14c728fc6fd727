#include "sim/chakra/nodes.h"

#include "base/error.h"

namespace overtake::chakra {

void Nodes::fail(const Node& node, std::string_view what) const {
  fail_user("{}: node {} '{:.60}': {}", files[node.rank], node.id, graph.layer_name(node.layer), what);
}

}  // namespace overtake::chakra
