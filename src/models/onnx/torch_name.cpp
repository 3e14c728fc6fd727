#include "models/onnx/torch_name.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace overtake::onnx {
namespace {

// Of ops that models often have and Overtake does not train, or not in every form.
constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"ArgMax", "argmax"},
    {"ArgMin", "argmin"},
    {"AveragePool", "avg_pool"},
    {"BatchNormalization", "batch_norm"},
    {"Bernoulli", "bernoulli"},
    {"Conv", "Conv1d, Conv2d or Conv3d"},
    {"ConvTranspose", "ConvTranspose1d, ConvTranspose2d or ConvTranspose3d"},
    {"CumSum", "cumsum"},
    {"DepthToSpace", "pixel_shuffle"},
    {"Einsum", "einsum"},
    {"GatherElements", "gather"},
    {"GatherND", "indexing with tensors"},
    {"Gemm", "Linear"},
    {"GridSample", "grid_sample"},
    {"GRU", "GRU"},
    {"If", "a condition in torch.jit.script"},
    {"InstanceNormalization", "instance_norm"},
    {"Loop", "a loop in torch.jit.script"},
    {"LpNormalization", "normalize"},
    {"LSTM", "LSTM"},
    {"MatMul", "matmul or Linear"},
    {"MaxPool", "max_pool"},
    {"Mod", "remainder"},
    {"Multinomial", "multinomial"},
    {"NonMaxSuppression", "torchvision.ops.nms"},
    {"NonZero", "nonzero, or a mask as index"},
    {"OneHot", "one_hot"},
    {"Pad", "pad"},
    {"PRelu", "PReLU"},
    {"RandomNormalLike", "randn_like"},
    {"ReduceL1", "norm(p=1)"},
    {"ReduceLogSumExp", "logsumexp"},
    {"ReduceMax", "amax"},
    {"ReduceMin", "amin"},
    {"ReduceProd", "prod"},
    {"Resize", "interpolate or Upsample"},
    {"RNN", "RNN"},
    {"RoiAlign", "torchvision.ops.roi_align"},
    {"Scan", "a loop in torch.jit.script"},
    {"ScatterElements", "scatter"},
    {"ScatterND", "assignment to a slice or to indices"},
    {"SpaceToDepth", "pixel_unshuffle"},
    {"STFT", "stft"},
    {"TopK", "topk or sort"},
    {"Trilu", "tril or triu"},
    {"Unique", "unique"},
};

}  // namespace

std::string torch_name(const Node& node) {
  constexpr std::string_view kTarget = "target=torch.ops.";
  const std::size_t at = node.origin.find(kTarget), begin = at + kTarget.size();
  if (at != std::string::npos)
    if (const std::size_t end = node.origin.find(']', begin); end != std::string::npos && end - begin < 80)
      return node.origin.substr(begin, end - begin);
  const auto found = std::ranges::find(kNames, std::string_view(node.op), [](const auto& row) { return row.first; });
  return found == std::end(kNames) ? "" : std::string(found->second);
}

}  // namespace overtake::onnx
