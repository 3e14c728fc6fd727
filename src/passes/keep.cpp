#include "passes/keep.h"

#include "base/error.h"

namespace overtake {

BufferId find_readable(const Graph& g, const std::string& name) {
  for (const Parameter& p : g.parameters)
    if (g.buffer_name(p.buffer) + ".grad" == name) return p.gradient;
  for (TaskId t = 0; t < g.tasks.size(); ++t)
    for (const BufferId b : g.writes(t))
      if (b != kNone && g.buffer_name(b) == name && g.buffers[b].role != Role::scratch) return b;
  return kNone;
}

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

Pass<Graph> keep_readable(std::vector<std::string> names) {
  return {"keep_readable", [names = std::move(names)](Graph g) {
            for (const std::string& name : names) {
              const BufferId b = find_readable(g, name);
              if (b == kNone)
                fail_user(
                    "`readable {}`: no task of model {} writes a tensor of that name; choose one that "
                    "print(program.step) shows, or leave out the pass that fused it away with `skip_passes`",
                    name, g.model);
              if (Role& role = g.buffers[b].role; !is_persistent(role)) role = Role::output;
            }
            return g;
          }};
}

}  // namespace overtake
