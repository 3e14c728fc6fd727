#include "passes/training_passes.h"

#include "passes/differentiate.h"
#include "passes/fold_transposes.h"
#include "passes/fuse.h"
#include "passes/fuse_elementwise.h"
#include "passes/fuse_gradients.h"
#include "passes/join_projections.h"
#include "passes/layout.h"
#include "passes/pad_classes.h"
#include "passes/precision.h"
#include "passes/recognise.h"
#include "passes/share_concats.h"
#include "passes/weights.h"

namespace overtake {

std::vector<Pass<Graph>> training_passes(const Target& target, const TrainingPassOptions& options) {
  std::vector<Pass<Graph>> passes;
  // First: every later pass knows the large ops better than what they are made of.
  passes.push_back({"recognise", recognise, is_forward_only});
  // After attention has been found, whose pattern has transposes; before differentiation, so that gradients are
  // products of matrices as they lie, too.
  passes.push_back(
      {"fold_transposes", [&target](Graph g) { return fold_transposes(std::move(g), target); }, is_forward_only});
  // Fusing comes before differentiation: on the forward graph alone patterns are small, and each op's own gradient rule
  // then fuses the backward as well.
  passes.push_back({"fuse",
                    [&target](Graph g) {
                      return fuse(std::move(g),
                                  {.linear = [&](std::string_view f) { return target.fuses_linear(f); },
                                   .batch_norm = [&](std::string_view f) { return target.fuses_batch_norm(f); }});
                    },
                    is_forward_only});
  // What is left of small tasks when all larger ones have taken theirs.
  passes.push_back({"fuse_elementwise", fuse_elementwise, is_forward_only});
  if (target.joins_projections()) passes.push_back({"join_projections", join_projections, is_forward_only});
  if (target.pads_classes()) passes.push_back({"pad_classes", pad_classes, is_forward_only});
  // Before layouts, so that casts are laid out like everything else.
  if (options.bf16) passes.push_back({"bf16", use_bf16, is_forward_only});
  // Before differentiation: a gradient lies like its value, and a reorder has a gradient like any other op.
  passes.push_back({"layout",
                    [&target, propagate = options.propagate_layouts](Graph g) {
                      return choose_layouts(std::move(g), target, propagate);
                    },
                    is_forward_only});
  passes.push_back({"differentiate", differentiate, is_forward_only, is_differentiated});
  // What only shows between the gradient rules of neighbours.
  passes.push_back({"fuse_gradients", [&target](Graph g) { return fuse_gradients(std::move(g), target); },
                    is_differentiated, is_differentiated});
  // Before updates, whose states lie like the weight.
  passes.push_back(
      {"store_weights", [&target](Graph g) { return store_weights(std::move(g), target); }, is_differentiated});
  passes.push_back({"updates", [settings = options.optimizer](Graph g) { return add_updates(std::move(g), settings); },
                    is_differentiated, has_updates});
  for (const Pass<Graph>& pass : options.extra) passes.push_back(pass);
  // After everything that may still change who reads an image, or who looks at it from outside.
  if (target.shares_concats())
    passes.push_back(
        {"share_concats", [&target](Graph g) { return share_concats(std::move(g), target); }, has_updates});
  // After everything that may still change who reads a weight.
  passes.push_back({"pack_weights", [&target](Graph g) { return pack_weights(std::move(g), target); }, has_updates});
  if (target.update_group_elements() > 0)
    passes.push_back({"group_updates",
                      [&target](Graph g) { return group_updates(std::move(g), target.update_group_elements()); },
                      has_updates});
  // Last: scratch depends on the final form of each task.
  passes.push_back({"scratch", [&target](Graph g) { return add_scratch(std::move(g), target); }, has_updates});
  return passes;
}

Graph build_training_graph(Graph graph, const Target& target, const TrainingPassOptions& options, PassRunner& runner) {
  graph.parts = options.parts;
  for (const Pass<Graph>& pass : training_passes(target, options)) graph = runner.run(pass, std::move(graph));
  return graph;
}

}  // namespace overtake
