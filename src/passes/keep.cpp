#include "passes/keep.h"

namespace overtake {

Pass<Graph> keep_buffers(std::function<bool(const std::string&)> is_wanted) {
  return {"keep", [is_wanted = std::move(is_wanted)](Graph g) {
            for (BufferId b = 0; b < g.buffers.size(); ++b) {
              const Role role = g.buffers[b].role;
              const bool is_transient = !is_persistent(role) && role != Role::input && role != Role::scratch;
              if (is_transient && is_wanted(g.buffer_name(b))) g.buffers[b].role = Role::output;
            }
            return g;
          }};
}

Pass<Graph> keep_gradients() {
  return {"keep_gradients", [](Graph g) {
            for (const Parameter& p : g.parameters)
              if (p.gradient != kNone) g.buffers[p.gradient].role = Role::output;
            return g;
          }};
}

}  // namespace overtake
