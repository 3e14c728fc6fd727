// y[..., D] = table[tokens[...], D]
// forward: reads tokens (int32), table   writes y;   weight_grad: reads tokens, dy   writes dtable
// attributes: vocabulary, width, padding (optional: a row that gathering does not train)

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const TensorType& tokens = inputs[0];
  const std::int64_t vocabulary = attrs.integer("vocabulary"), width = attrs.integer("width");
  if (tokens.dtype != DType::i32 || vocabulary < 1 || width < 1 || tokens.shape.rank >= Shape::kMaxRank)
    fail_shape("token ids must be int32, vocabulary ({}) and width ({}) positive", vocabulary, width);
  if (attrs.has("padding") && (attrs.integer("padding") < 0 || attrs.integer("padding") >= vocabulary))
    fail_shape("row {} as padding in a table of {} rows", attrs.integer("padding"), vocabulary);
  Shape y = tokens.shape;
  y.dims[y.rank++] = width;
  return {.parameters = {{"weight", {vocabulary, width}, Role::weight, {Init::Kind::normal, 1.0}}},
          .outputs = {{"", y}}};
}

void gradient(Gradient& g) {
  if (g.wants(1)) g.emit(Kind::weight_grad, {g.in(0), g.grad_out(0)}, {g.grad_in(1)});
}

constexpr TaskRule kTasks[] = {{kForward, "tokens#, table+ -> y"}, {kWeightGrad, "tokens# dy -> dtable+"}};

}  // namespace

OpTraits embedding_traits() { return {.op = Op::embedding, .form = form, .gradient = gradient, .tasks = kTasks}; }

}  // namespace overtake
