#pragma once
// Layers and initial values that several families share.

#include <optional>
#include <string>

#include "models/settings.h"
#include "overtake/model.h"

namespace overtake {

// The input [batch, channels, image, image]; `least` is the smallest image that the network can take.
Value input_images(Model& m, const Settings& s, std::int64_t least_image = 1);

// x itself for p = 0.
Value dropped(Model& m, Value x, double p, const std::string& name = "");

// What Model::attention does in one kernel, op by op: softmax(q k^T / sqrt(head) + mask) v of [N, S, D] each, with
// dropout of the probabilities, which lie in memory as in frameworks without such a kernel.
Value attention_by_ops(Model& m, Value query, Value key, Value value, std::int64_t heads, std::optional<Value> mask,
                       double dropout, const std::string& name);
// [S, S]: what is added so that no place sees later ones. One is enough for all layers.
Value causal_mask(Model& m, std::int64_t sequence, const std::string& name);

// Normal, as He et al. 2015 scale it for ReLU: by what a convolution's weight, [out, in / groups, kh, kw], feeds (as
// PyTorch counts: out x kh x kw), or by what feeds it.
Init he_fan_out(const Conv2d& conv);
Init he_fan_in(const Conv2d& conv, std::int64_t in);
Init normal_init(double deviation);
// Glorot and Bengio 2010, for a weight [out, in].
Init xavier_uniform(std::int64_t in, std::int64_t out);

// Channels of a network that setting `width_multiplier` makes thinner or wider: at least 8.
std::int64_t scaled_channels(std::int64_t channels, double multiplier);

// How a network normalises its images: setting `norm` is 0 for batch norm, else the number of groups of a group norm,
// or the greatest number that divides both it and the channels.
struct ImageNorm {
  std::int64_t groups = 0;
  Norm options = {};
};
ImageNorm image_norm(const Settings& s, const Norm& options = {});
Value normalise(Model& m, Value x, const ImageNorm& norm, const std::string& name);

// A convolution without bias, then a norm. Without an initial value of its own, the convolution has he_fan_out.
Value conv_norm(Model& m, Value x, Conv2d conv, const ImageNorm& norm, const std::string& conv_name,
                const std::string& norm_name);

}  // namespace overtake
