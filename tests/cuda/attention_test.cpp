// Attention on the GPU, through cuDNN and by our own kernels, against the CPU kernels.

#include "kernels/cuda/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda/against_cpu.h"
#include "cuda/device_array.h"

namespace overtake::cuda {
namespace {

enum class Mask { none, random, blind };  // blind: the first batch entry shows nothing, the second one no early key

struct Case {
  const char* name;
  std::int64_t batch, heads, head_dim, queries, keys;
  bool packed = false;  // q, k, v are one [B, S, 3, H, D], and so are their gradients; queries == keys
  bool causal = false;
  Mask mask = Mask::none;
  bool fused = true;  // in bf16, cuDNN is expected to take it
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

std::int64_t width(const Case& c) { return c.heads * c.head_dim; }

// A row stride is `width`, or 3 widths where packed.
std::int64_t stride(const Case& c) { return (c.packed ? 3 : 1) * width(c); }

AttentionKind kind_of(const Case& c, bool bf16, bool plain) {
  AttentionKind kind;
  kind.shape = {.batch = c.batch,
                .heads = c.heads,
                .head_dim = c.head_dim,
                .queries = c.queries,
                .keys = c.keys,
                .q_stride = stride(c),
                .k_stride = stride(c),
                .v_stride = stride(c),
                .o_stride = width(c),
                .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                .causal = c.causal};
  kind.dq_stride = kind.dk_stride = kind.dv_stride = stride(c);
  kind.has_mask = c.mask != Mask::none;
  kind.bf16 = bf16;
  kind.plain = plain;
  return kind;
}

std::vector<std::uint8_t> mask_of(const Case& c) {
  std::vector<std::uint8_t> mask(size(c.batch * c.keys));
  std::mt19937 random(7);
  for (std::uint8_t& shown : mask) shown = random() % 4 != 0 ? 1 : 0;
  if (c.mask == Mask::blind) {
    for (std::int64_t j = 0; j < c.keys; ++j) mask[size(j)] = 0;
    for (std::int64_t j = 0; j < c.keys / 2; ++j) mask[size(c.keys + j)] = 0;
  }
  return mask;
}

// q, k, v (or their gradients) in one allocation: packed side by side in each row, or one tensor after the other.
struct Parts {
  std::int64_t q, k, v, total;  // offsets of the first elements, and all elements
};
Parts parts_of(const Case& c) {
  const std::int64_t q_size = c.batch * c.queries * width(c), k_size = c.batch * c.keys * width(c);
  if (c.packed) return {0, width(c), 2 * width(c), 3 * q_size};
  // Each tensor starts at a 16-byte boundary.
  const auto up = [](std::int64_t n) { return (n + 7) / 8 * 8; };
  return {0, up(q_size), up(q_size) + up(k_size), up(q_size) + 2 * up(k_size)};
}

template <class T>
struct Results {
  std::vector<T> o, qkv_grad;
  std::vector<float> lse;
};

template <class T>
AttentionInputs<T> inputs(const Case& c, const T* qkv, const std::uint8_t* mask) {
  const Parts parts = parts_of(c);
  return {qkv + parts.q, qkv + parts.k, qkv + parts.v, c.mask != Mask::none ? mask : nullptr};
}

template <class T>
AttentionGrads<T> gradients(const Case& c, T* qkv) {
  const Parts parts = parts_of(c);
  return {qkv + parts.q, qkv + parts.k, qkv + parts.v, stride(c), stride(c), stride(c)};
}

template <class T>
Results<T> on_cpu(const Case& c, const std::vector<T>& qkv, const std::vector<std::uint8_t>& mask,
                  const std::vector<T>& o_grad) {
  const AttentionShape s = kind_of(c, false, true).shape;
  const std::int64_t units = c.batch * c.heads;
  Results<T> r{std::vector<T>(o_grad.size()), std::vector<T>(qkv.size()), std::vector<float>(size(units * c.queries))};
  const std::int64_t bytes =
      std::max(kernels::attention_scratch_bytes<T>(s), kernels::attention_grad_scratch_bytes<T>(s));
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> scratch(size(bytes / 64 + 1));
  const AttentionInputs<T> in = inputs(c, qkv.data(), mask.data());
  kernels::attention_forward<T>(s, in, r.o.data(), r.lse.data(), scratch.data(), 0, units);
  kernels::attention_input_grad<T>(s, in, r.o.data(), r.lse.data(), o_grad.data(), gradients(c, r.qkv_grad.data()),
                                   scratch.data(), 0, units);
  return r;
}

// The parts of qkv that are there, without what lies between the tensors.
template <class T>
std::vector<T> part(const std::vector<T>& qkv, std::int64_t first, std::int64_t rows, const Case& c) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t d = 0; d < width(c); ++d) values.push_back(qkv[size(first + i * stride(c) + d)]);
  return values;
}

void expect_lse(const std::vector<float>& got, const std::vector<float>& want, float bound) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isinf(want[i])) {
      ASSERT_EQ(got[i], want[i]) << "lse [" << i << "]";
    } else {
      ASSERT_NEAR(got[i], want[i], bound) << "lse [" << i << "]";
    }
  }
}

template <class T>
void expect_like_cpu(const Case& c, bool plain) {
  const Parts parts = parts_of(c);
  const auto qkv = random_values<T>(parts.total, 1), o_grad = random_values<T>(c.batch * c.queries * width(c), 2);
  const auto mask = mask_of(c);
  const Results<T> want = on_cpu<T>(c, qkv, mask, o_grad);

  const AttentionKind kind = kind_of(c, std::is_same_v<T, bf16>, plain);
  const AttentionForward forward(kind);
  const AttentionBackward backward(kind);
  if (kind.bf16 && !plain && c.fused) {
    EXPECT_TRUE(forward.fused()) << forward.refusal();
    EXPECT_TRUE(backward.fused()) << backward.refusal();
  }
  DeviceArray<std::uint8_t> forward_workspace(forward.workspace_bytes()),
      backward_workspace(backward.workspace_bytes());
  const DeviceArray<T> d_qkv(qkv), d_o_grad(o_grad);
  const DeviceArray<std::uint8_t> d_mask(mask);
  Results<T> first;
  for (int run = 0; run < 2; ++run) {
    DeviceArray<T> o(want.o.size()), qkv_grad(qkv.size());
    DeviceArray<float> lse(want.lse.size());
    const AttentionInputs<T> in = inputs<T>(c, d_qkv.data(), d_mask.data());
    forward.run<T>(nullptr, in, o.data(), lse.data(), forward_workspace.data());
    backward.run<T>(nullptr, in, o.data(), lse.data(), d_o_grad.data(), gradients(c, qkv_grad.data()),
                    backward_workspace.data());
    const Results<T> got{o.download(), qkv_grad.download(), lse.download()};
    if (run == 0) {
      const float bound = sizeof(T) == 4 ? 1e-4f : 2e-2f;
      expect_close(got.o, want.o, bound, "o");
      expect_lse(got.lse, want.lse, sizeof(T) == 4 ? 1e-4f : 1e-2f);
      const auto compare = [&](std::int64_t at, std::int64_t positions, const char* what) {
        const std::int64_t rows = c.batch * positions;
        expect_close(part(got.qkv_grad, at, rows, c), part(want.qkv_grad, at, rows, c), bound, what);
      };
      compare(parts.q, c.queries, "dq");
      compare(parts.k, c.keys, "dk");
      compare(parts.v, c.keys, "dv");
      first = got;
    }
    expect_same_bytes(got.o, first.o, "o");
    expect_same_bytes(got.lse, first.lse, "lse");
    expect_same_bytes(got.qkv_grad, first.qkv_grad, "gradients");
  }
}

class Attention : public testing::TestWithParam<Case> {};

TEST_P(Attention, Float32) {
  OVERTAKE_NEEDS_GPU();
  expect_like_cpu<float>(GetParam(), false);
}

TEST_P(Attention, Bf16) {
  OVERTAKE_NEEDS_GPU();
  expect_like_cpu<bf16>(GetParam(), false);
}

TEST_P(Attention, Bf16Plain) {
  OVERTAKE_NEEDS_GPU();
  expect_like_cpu<bf16>(GetParam(), true);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Attention,
    testing::Values(
        Case{.name = "bert", .batch = 2, .heads = 12, .head_dim = 64, .queries = 128, .keys = 128, .packed = true},
        Case{.name = "gpt",
             .batch = 1,
             .heads = 3,
             .head_dim = 64,
             .queries = 1024,
             .keys = 1024,
             .packed = true,
             .causal = true},
        Case{.name = "vit", .batch = 2, .heads = 3, .head_dim = 64, .queries = 197, .keys = 197, .packed = true},
        Case{.name = "wide", .batch = 1, .heads = 2, .head_dim = 128, .queries = 130, .keys = 130, .causal = true},
        Case{.name = "narrow", .batch = 2, .heads = 4, .head_dim = 32, .queries = 96, .keys = 96},
        Case{.name = "cross", .batch = 2, .heads = 4, .head_dim = 64, .queries = 100, .keys = 77},
        Case{
            .name = "cross_causal", .batch = 2, .heads = 2, .head_dim = 64, .queries = 64, .keys = 192, .causal = true},
        Case{.name = "more_queries",
             .batch = 2,
             .heads = 2,
             .head_dim = 64,
             .queries = 150,
             .keys = 70,
             .causal = true,
             .fused = false},
        Case{.name = "mask",
             .batch = 3,
             .heads = 4,
             .head_dim = 64,
             .queries = 128,
             .keys = 128,
             .packed = true,
             .mask = Mask::random},
        Case{.name = "mask_odd_keys",
             .batch = 2,
             .heads = 2,
             .head_dim = 64,
             .queries = 70,
             .keys = 133,
             .mask = Mask::random},
        Case{.name = "mask_half_tile",
             .batch = 2,
             .heads = 2,
             .head_dim = 64,
             .queries = 70,
             .keys = 192,
             .mask = Mask::random,
             .fused = false},
        Case{.name = "mask_few",
             .batch = 3,
             .heads = 2,
             .head_dim = 32,
             .queries = 5,
             .keys = 12,
             .mask = Mask::random,
             .fused = false},
        Case{.name = "mask_causal",
             .batch = 2,
             .heads = 2,
             .head_dim = 64,
             .queries = 200,
             .keys = 200,
             .causal = true,
             .mask = Mask::random},
        Case{.name = "mask_cross_causal",
             .batch = 2,
             .heads = 2,
             .head_dim = 64,
             .queries = 60,
             .keys = 200,
             .causal = true,
             .mask = Mask::random,
             .fused = false},
        Case{.name = "blind", .batch = 3, .heads = 2, .head_dim = 64, .queries = 128, .keys = 128, .mask = Mask::blind},
        Case{.name = "blind_causal",
             .batch = 3,
             .heads = 2,
             .head_dim = 64,
             .queries = 128,
             .keys = 128,
             .causal = true,
             .mask = Mask::blind},
        Case{.name = "odd",
             .batch = 2,
             .heads = 3,
             .head_dim = 20,
             .queries = 37,
             .keys = 37,
             .packed = true,
             .causal = true,
             .fused = false},
        Case{.name = "odd_head", .batch = 1, .heads = 2, .head_dim = 7, .queries = 5, .keys = 66, .fused = false},
        Case{.name = "large_head",
             .batch = 1,
             .heads = 2,
             .head_dim = 200,
             .queries = 90,
             .keys = 70,
             .mask = Mask::random,
             .fused = false},
        Case{.name = "huge_odd_head",
             .batch = 1,
             .heads = 1,
             .head_dim = 301,
             .queries = 70,
             .keys = 70,
             .causal = true,
             .fused = false},
        Case{.name = "few", .batch = 2, .heads = 2, .head_dim = 64, .queries = 3, .keys = 2, .fused = false}),
    [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace overtake::cuda
