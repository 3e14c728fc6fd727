// Kernels on images that lie inside wider ones: the same bits as on images of their own, and not a byte beside them.

#include <cstdio>
#include <optional>

#include "cuda/against_cpu.h"
#include "kernels/cuda/batch_norm.h"
#include "kernels/cuda/conv2d.h"
#include "kernels/cuda/finite.h"
#include "kernels/cuda/move.h"
#include "kernels/cuda/pool.h"

namespace overtake {
namespace {

using cuda::BatchNormPitches;
using cuda::NormFunction;
using kernels::BatchNormChannels;
using kernels::BatchNormMask;
using kernels::PoolShape;

// Columns [first, first + channels) of a matrix [rows][pitch] on the GPU, poisoned all around.
template <class T>
class Part {
 public:
  Part(std::int64_t rows, std::int64_t channels, std::int64_t pitch, std::int64_t first)
      : rows_(rows), channels_(channels), pitch_(pitch), first_(first), array_(size(rows * pitch)) {}
  // values: [rows][channels]
  Part(const std::vector<T>& values, std::int64_t channels, std::int64_t pitch, std::int64_t first)
      : Part(static_cast<std::int64_t>(values.size()) / channels, channels, pitch, first) {
    check_cuda(cudaMemcpy2D(data(), width(pitch), values.data(), width(channels), width(channels), size(rows_),
                            cudaMemcpyHostToDevice),
               "upload");
  }

  T* data() { return array_.data() + first_; }

  // [rows][channels]; what is beside it must be as it was.
  std::vector<T> download() const {
    const std::vector<T> all = array_.download();
    std::vector<T> own;
    for (std::int64_t i = 0; i < rows_ * pitch_; ++i) {
      const std::int64_t column = i % pitch_;
      if (column >= first_ && column < first_ + channels_) {
        own.push_back(all[size(i)]);
      } else {
        const std::uint64_t poison = ~std::uint64_t{0};
        EXPECT_EQ(std::memcmp(&all[size(i)], &poison, sizeof(T)), 0) << "written beside the image, element " << i;
      }
    }
    return own;
  }

 private:
  static std::size_t width(std::int64_t elements) { return size(elements) * sizeof(T); }

  std::int64_t rows_, channels_, pitch_, first_;
  DeviceArray<T> array_;
};

template <class T>
class Pitched : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Pitched, Types);

// Whole packs and odd channels, whole and odd pitches; the first column always at a boundary of 16 bytes.
struct Case {
  std::int64_t rows, channels, pitch, first;
};
const std::vector<Case> kCases = {{2, 8, 16, 8},       {1000, 64, 256, 0},   {1000, 64, 256, 192}, {513, 32, 1024, 64},
                                  {6272, 256, 264, 8}, {131, 72, 80, 0},     {777, 65, 96, 16},    {40001, 24, 64, 40},
                                  {999, 124, 131, 0},  {3000, 992, 1024, 32}};

// Mean, rstd, gamma and beta of so many channels.
struct Norm {
  explicit Norm(std::int64_t channels)
      : mean(random_values<float>(channels, 1)),
        rstd(random_values<float>(channels, 2, 1.0f, 0.1f)),
        gamma(random_values<float>(channels, 3, 1.0f, 0.3f)),
        beta(random_values<float>(channels, 4)),
        dgamma(random_values<float>(channels, 5)),
        dbeta(random_values<float>(channels, 6)) {}
  BatchNormChannels channels() const { return {mean.data(), rstd.data(), gamma.data(), beta.data()}; }
  DeviceArray<float> mean, rstd, gamma, beta, dgamma, dbeta;
};

TYPED_TEST(Pitched, BatchNormForwardHasTheSameBits) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.channels << " of " << c.pitch << " at " << c.first);
    const std::vector<TypeParam> values = random_values<TypeParam>(c.rows * c.channels, 7, 3.0f);
    DeviceArray<TypeParam> x(values), y(values.size());
    Part<TypeParam> part_x(values, c.channels, c.pitch, c.first), part_y(c.rows, c.channels, c.pitch, c.first);
    const BatchNormPitches pitches{.x = c.pitch, .y = c.pitch};
    DeviceArray<unsigned> counters(std::vector<unsigned>(size(cuda::batch_norm_counters(c.rows, c.channels))));
    const auto statistics = [&](const TypeParam* from, const BatchNormPitches& p) {
      DeviceArray<float> mean(size(c.channels)), rstd(size(c.channels)),
          partials(size(cuda::batch_norm_partials(c.rows, c.channels)));
      cuda::batch_norm_statistics(nullptr, from, c.rows, c.channels, 1e-5f, 0.1f, mean.data(), rstd.data(), nullptr,
                                  nullptr, partials.data(), counters.data(), p);
      return std::pair(mean.download(), rstd.download());
    };
    // Where packs fit the channels but not the pitch, sums go another way.
    const bool is_same_way = (c.channels | c.pitch) % (16 / static_cast<std::int64_t>(sizeof(TypeParam))) == 0;
    const auto dense = statistics(x.data(), {}), pitched = statistics(part_x.data(), pitches);
    expect_close(pitched.first, dense.first, is_same_way ? 0.0f : 1e-5f, "mean");
    expect_close(pitched.second, dense.second, is_same_way ? 0.0f : 1e-5f, "rstd");

    const Norm norm(c.channels);
    cuda::batch_norm_apply<TypeParam>(nullptr, x.data(), nullptr, norm.channels(), c.rows, c.channels,
                                      NormFunction::relu, y.data());
    cuda::batch_norm_apply<TypeParam>(nullptr, part_x.data(), nullptr, norm.channels(), c.rows, c.channels,
                                      NormFunction::relu, part_y.data(), pitches);
    expect_same_bytes(part_y.download(), y.download(), "y");
  }
}

TYPED_TEST(Pitched, BatchNormBackwardHasTheSameBits) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.channels << " of " << c.pitch << " at " << c.first);
    const std::vector<TypeParam> values = random_values<TypeParam>(c.rows * c.channels, 7, 3.0f),
                                 grads = random_values<TypeParam>(c.rows * c.channels, 8),
                                 others = random_values<TypeParam>(c.rows * c.channels, 9);
    DeviceArray<TypeParam> x(values), dy(grads), add(others), dx(values.size());
    Part<TypeParam> part_x(values, c.channels, c.pitch, c.first), part_dy(grads, c.channels, c.pitch, c.first),
        part_add(others, c.channels, c.pitch, c.first), part_dx(c.rows, c.channels, c.pitch, c.first);
    const BatchNormPitches pitches{.x = c.pitch, .dy = c.pitch};
    const Norm norm(c.channels);
    DeviceArray<unsigned> counters(std::vector<unsigned>(size(cuda::batch_norm_counters(c.rows, c.channels))));
    const auto sums = [&](const TypeParam* of_x, const TypeParam* of_dy, const BatchNormPitches& p) {
      DeviceArray<float> dgamma(size(c.channels)), dbeta(size(c.channels)),
          partials(size(cuda::batch_norm_grad_partials(c.rows, c.channels)));
      cuda::batch_norm_weight_grad<TypeParam>(nullptr, of_x, of_dy, nullptr, nullptr, norm.channels(),
                                              NormFunction::relu, BatchNormMask::from_x, c.rows, c.channels, nullptr,
                                              dgamma.data(), dbeta.data(), partials.data(), counters.data(), p);
      return std::pair(dgamma.download(), dbeta.download());
    };
    const auto dense = sums(x.data(), dy.data(), {}), pitched = sums(part_x.data(), part_dy.data(), pitches);
    expect_close(pitched.first, dense.first, 1e-5f, "dgamma");
    expect_close(pitched.second, dense.second, 1e-5f, "dbeta");

    const auto input_grad = [&](const TypeParam* of_x, const TypeParam* of_dy, TypeParam* to, const TypeParam* added,
                                const BatchNormPitches& p) {
      cuda::batch_norm_input_grad<TypeParam>(nullptr, of_x, of_dy, norm.channels(), norm.dgamma.data(),
                                             norm.dbeta.data(), NormFunction::relu, c.rows, c.channels, to, added, p);
    };
    input_grad(x.data(), dy.data(), dx.data(), nullptr, {});
    const std::vector<TypeParam> alone = dx.download();
    input_grad(part_x.data(), part_dy.data(), part_dx.data(), nullptr, {.x = c.pitch, .dy = c.pitch, .dx = c.pitch});
    expect_same_bytes(part_dx.download(), alone, "dx");
    // With another gradient on its way out; the CPU adds it to what it rounded before.
    std::vector<TypeParam> want(alone.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      want[i] = from_float<TypeParam>(to_float(alone[i]) + to_float(others[i]));
    input_grad(x.data(), dy.data(), dx.data(), add.data(), {});
    expect_close(dx.download(), want, kBound<TypeParam>, "dx with another gradient");
    input_grad(part_x.data(), dy.data(), part_add.data(), part_add.data(),
               {.x = c.pitch, .dx = c.pitch, .add = c.pitch});
    expect_same_bytes(part_add.download(), dx.download(), "dx over what is added");
  }
}

TYPED_TEST(Pitched, PoolsHaveTheSameBits) {
  OVERTAKE_NEEDS_GPU();
  for (const std::int64_t channels : {64, 24, 5}) {
    for (const PoolShape& s : {PoolShape{2, channels, 17, 15, 9, 8, 3, 3, 2, 2, 1, 1, 1, 1},
                               PoolShape{2, channels, 8, 10, 4, 5, 2, 2, 2, 2, 0, 0, 0, 0},
                               PoolShape{2, channels, 7, 6, 7, 6, 3, 3, 1, 1, 1, 1, 1, 1}}) {
      for (const std::int64_t pitch : {std::int64_t{256}, channels + 3}) {
        const std::int64_t first = pitch == 256 ? 64 : 0, pixels = s.batch * s.out_h * s.out_w;
        const std::vector<TypeParam> values = random_values<TypeParam>(s.batch * s.in_h * s.in_w * channels, 1),
                                     grads = random_values<TypeParam>(pixels * channels, 2);
        DeviceArray<TypeParam> x(values), dy(grads), y(grads.size()), dx(values.size()), dx_of_part(values.size());
        DeviceArray<std::uint8_t> argmax(grads.size()), argmax_of_part(grads.size());
        Part<TypeParam> part_y(pixels, channels, pitch, first), part_means(pixels, channels, pitch, first),
            part_dy(grads, channels, pitch, first);
        cuda::max_pool_forward(nullptr, s, x.data(), y.data(), argmax.data());
        cuda::max_pool_forward(nullptr, s, x.data(), part_y.data(), argmax_of_part.data(), pitch);
        expect_same_bytes(part_y.download(), y.download(), "max");
        expect_same_bytes(argmax_of_part.download(), argmax.download(), "places");
        cuda::max_pool_input_grad(nullptr, s, dy.data(), argmax.data(), dx.data());
        cuda::max_pool_input_grad(nullptr, s, part_dy.data(), argmax.data(), dx_of_part.data(), pitch);
        expect_same_bytes(dx_of_part.download(), dx.download(), "gradient of max");
        cuda::average_pool_forward(nullptr, s, true, x.data(), y.data());
        cuda::average_pool_forward(nullptr, s, true, x.data(), part_means.data(), pitch);
        expect_same_bytes(part_means.download(), y.download(), "mean");
        cuda::average_pool_input_grad(nullptr, s, true, dy.data(), dx.data());
        cuda::average_pool_input_grad(nullptr, s, true, part_dy.data(), dx_of_part.data(), pitch);
        expect_same_bytes(dx_of_part.download(), dx.download(), "gradient of mean");
      }
    }
  }
}

// All around is NaN.
TYPED_TEST(Pitched, FiniteLooksAtTheImageAlone) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.channels << " of " << c.pitch << " at " << c.first);
    std::vector<TypeParam> values = random_values<TypeParam>(c.rows * c.channels, 1);
    for (const std::uint32_t want : {0u, 1u}) {
      Part<TypeParam> x(values, c.channels, c.pitch, c.first);
      DeviceArray<std::uint32_t> flag(std::vector<std::uint32_t>{0});
      cuda::mark_non_finite<TypeParam>(nullptr, x.data(), c.rows * c.channels, flag.data(), {c.channels, c.pitch});
      EXPECT_EQ(flag.download()[0], want);
      values.back() = from_float<TypeParam>(INFINITY);
    }
  }
}

// Three parts, of which one lies in place already, into a whole that is part of a wider one; and back.
TYPED_TEST(Pitched, ConcatMovesWhatIsNotThere) {
  OVERTAKE_NEEDS_GPU();
  const std::int64_t rows = 300;
  for (const std::vector<std::int64_t>& extents : {std::vector<std::int64_t>{16, 32, 8}, {24, 8, 7}}) {
    const std::int64_t channels = extents[0] + extents[1] + extents[2];
    const std::vector<TypeParam> whole = random_values<TypeParam>(rows * channels, 1);
    std::vector<std::vector<TypeParam>> parts(3);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const auto column = static_cast<std::int64_t>(i) % channels;
      parts[column < extents[0] ? 0 : column < extents[0] + extents[1] ? 1 : 2].push_back(whole[i]);
    }
    Part<TypeParam> first(parts[0], extents[0], 64, 8), into(whole, channels, 128, 16);
    DeviceArray<TypeParam> last(parts[2]);
    const std::vector<const TypeParam*> from = {first.data(), nullptr, last.data()};
    cuda::concat<TypeParam>(nullptr, from, extents, 1, into.data(), rows, {.whole = 128, .parts = {64, 0, 0}});
    expect_same_bytes(into.download(), whole, "concat");

    Part<TypeParam> first_again(rows, extents[0], 64, 8);
    DeviceArray<TypeParam> last_again(parts[2].size());
    const std::vector<TypeParam*> to = {first_again.data(), nullptr, last_again.data()};
    cuda::split<TypeParam>(nullptr, into.data(), to, extents, 1, rows, {.whole = 128, .parts = {64, 0, 0}});
    expect_same_bytes(first_again.download(), parts[0], "split");
    expect_same_bytes(last_again.download(), parts[2], "split");
  }
}

// What cuDNN's kernels may differ by, as in conv2d_test.cpp.
template <class T>
constexpr float kConvBound = sizeof(T) == 4 ? 1e-4f : 1e-2f;

// Both images inside others, or one, against the same convolution of images of their own; cuDNN may take another
// kernel.
template <class T>
void check_conv(const kernels::ConvShape& s, std::int64_t x_pitch, std::int64_t y_pitch) {
  const std::vector<T> x = random_values<T>(s.batch * s.in_h * s.in_w * s.in_channels, 1);
  const std::vector<T> w = random_values<T>(s.out_channels * s.kernel_h * s.kernel_w * s.in_channels, 2);
  const std::vector<T> dy = random_values<T>(s.batch * s.out_h * s.out_w * s.out_channels, 3);
  DeviceArray<T> dense_x(x), dense_dy(dy), weights(w);
  Part<T> part_x(x, s.in_channels, x_pitch, 0), part_dy(dy, s.out_channels, y_pitch, y_pitch - s.out_channels);
  cuda::Tuning tuning({}, {}, nullptr);
  using enum cuda::ConvTask;
  for (const cuda::ConvTask task : {forward, input_grad, weight_grad}) {
    cuda::ConvKind kind{.shape = s, .task = task};
    const cuda::Conv dense(kind, tuning, std::size_t{256} << 20);
    kind.x_pitch = x_pitch == s.in_channels ? 0 : x_pitch;
    kind.y_pitch = y_pitch;
    std::optional<cuda::Conv> pitched;
    try {
      pitched.emplace(kind, tuning, std::size_t{256} << 20);
    } catch (const std::runtime_error& error) {
      std::printf("  NO PLAN, so the passes leave such images alone: %s\n", error.what());
      continue;
    }
    std::printf("  dense %8.2f us, pitched %8.2f us (%s)\n", dense.microseconds(), pitched->microseconds(),
                pitched->plan_name().c_str());
    DeviceArray<std::uint8_t> scratch(std::max(dense.workspace_bytes(), pitched->workspace_bytes()));
    if (task == weight_grad) {
      DeviceArray<T> want(w.size()), got(w.size());
      dense.run(nullptr, dense_x.data(), dense_dy.data(), nullptr, want.data(), scratch.data());
      pitched->run(nullptr, part_x.data(), part_dy.data(), nullptr, got.data(), scratch.data());
      expect_close(got.download(), want.download(), kConvBound<T>, "dw");
    } else {
      const bool is_forward = task == forward;
      const std::int64_t channels = is_forward ? s.out_channels : s.in_channels, pitch = is_forward ? y_pitch : x_pitch;
      const std::size_t count = is_forward ? dy.size() : x.size();
      DeviceArray<T> want(count);
      Part<T> got(static_cast<std::int64_t>(count) / channels, channels, pitch, pitch - channels);
      dense.run(nullptr, is_forward ? dense_x.data() : dense_dy.data(), weights.data(), nullptr, want.data(),
                scratch.data());
      pitched->run(nullptr, is_forward ? part_x.data() : part_dy.data(), weights.data(), nullptr, got.data(),
                   scratch.data());
      expect_close(got.download(), want.download(), kConvBound<T>, is_forward ? "y" : "dx");
    }
  }
}

kernels::ConvShape square(std::int64_t batch, std::int64_t in, std::int64_t pixels, std::int64_t out,
                          std::int64_t kernel) {
  kernels::ConvShape s;
  s.batch = batch, s.in_channels = in, s.out_channels = out;
  s.in_h = s.in_w = s.out_h = s.out_w = pixels;
  s.kernel_h = s.kernel_w = kernel;
  s.pad_top = s.pad_left = s.pad_bottom = s.pad_right = kernel / 2;
  return s;
}

TYPED_TEST(Pitched, ConvolutionsAreThoseOfDenseImages) {
  OVERTAKE_NEEDS_GPU();
  const auto check = [](kernels::ConvShape s, std::int64_t x_pitch, std::int64_t y_pitch) {
    SCOPED_TRACE(to_string(s));
    s.bf16 = sizeof(TypeParam) == 2;
    check_conv<TypeParam>(s, x_pitch, y_pitch);
  };
  check(square(2, 32, 14, 64, 1), 96, 128);
  check(square(2, 64, 14, 64, 3), 64, 256);
  // Of DenseNet-121 at batch 32, one per block.
  check(square(32, 128, 56, 32, 3), 128, 256);
  check(square(32, 128, 28, 32, 3), 128, 512);
  check(square(32, 128, 14, 32, 3), 128, 1024);
  check(square(32, 128, 7, 32, 3), 128, 1024);
}

}  // namespace
}  // namespace overtake
