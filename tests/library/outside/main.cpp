// A program outside Overtake: it builds a network and says of how many tasks its forward pass consists.

#include <overtake/overtake.h>

#include <cstdio>
#include <string>
#include <utility>

int main() {
  overtake::Model m("outside", /*batch=*/8);
  overtake::Value x = m.input({1, 28, 28});
  x = m.max_pool(m.relu(m.conv2d(x, {.out = 4, .kernel = 3, .padding = 1})));
  m.cross_entropy(m.linear(m.flatten(x), {.out = 10}));
  const overtake::Graph graph = std::move(m).finish();

  // Errors of the library come through to the program.
  try {
    overtake::build_model("no-such-network", {});
    return 1;
  } catch (const overtake::UserError& e) {
    if (e.remedy().empty()) return 1;
  }
  if (std::string(overtake::version()) != overtake::kVersion) return 1;
  std::printf("overtake %s: %zu tasks\n", overtake::version(), graph.tasks.size());
}
