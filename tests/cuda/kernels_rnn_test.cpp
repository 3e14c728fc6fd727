#include <memory>

#include "cuda/against_cpu.h"
#include "kernels/cpu/gru.h"
#include "kernels/cpu/lstm.h"
#include "kernels/cuda/rnn.h"

namespace overtake {
namespace {

using kernels::RnnShape;

// Batch, steps, inputs, hidden: weights that fit the persistent kernel with one group and with several, batches and
// hidden units that are no whole tiles, several launches, and shapes of the kernel per step.
const std::vector<RnnShape> kShapes = {{3, 5, 7, 8},     {2, 1, 4, 24},    {16, 6, 12, 512}, {64, 4, 16, 512},
                                       {70, 3, 8, 64},   {33, 4, 16, 200}, {9, 3, 8, 1024},  {40, 2, 8, 1024},
                                       {300, 3, 4, 512}, {1, 9, 5, 136},   {5, 7, 3, 10},    {17, 4, 6, 33},
                                       {4, 2, 8, 1544},  {2, 3, 2, 1}};

template <class T>
constexpr float kRnnBound = sizeof(T) == 4 ? 1e-4f : 2e-2f;

// 64-byte aligned memory for the CPU kernels.
class CpuScratch {
 public:
  explicit CpuScratch(std::int64_t bytes) : memory_(size(bytes) + 64) {}
  void* data() {
    void* at = memory_.data();
    std::size_t space = memory_.size();
    return std::align(64, memory_.size() - 64, at, space);
  }

 private:
  std::vector<std::byte> memory_;
};

// x w^T: [rows, columns], rows `stride` apart.
template <class T>
std::vector<float> products(const std::vector<T>& x, const std::vector<T>& w, std::int64_t rows, std::int64_t columns,
                            std::int64_t depth, std::int64_t stride) {
  std::vector<float> result(size(rows * stride), std::nanf(""));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        sum += static_cast<double>(to_float(x[size(i * depth + k)])) *
               static_cast<double>(to_float(w[size(j * depth + k)]));
      }
      result[size(i * stride + j)] = static_cast<float>(sum);
    }
  }
  return result;
}

// Inputs of a layer with `gates` rows of weights per hidden unit.
template <class T>
struct Layer {
  RnnShape shape;
  std::int64_t rows, width;  // rows of weights; positions (b, t)
  std::vector<T> x, w_ih, w_hh, dy;
  std::vector<float> b_ih, b_hh;

  Layer(const RnnShape& s, std::int64_t gates) : shape(s), rows(gates * s.hidden), width(s.batch * s.steps) {
    const float deviation = 1.0f / std::sqrt(static_cast<float>(s.hidden));
    x = random_values<T>(width * s.inputs, 1);
    w_ih = random_values<T>(rows * s.inputs, 2, 0.0f, deviation);
    w_hh = random_values<T>(rows * s.hidden, 3, 0.0f, deviation);
    dy = random_values<T>(width * s.hidden, 4);
    b_ih = random_values<float>(rows, 5, 0.0f, 0.3f);
    b_hh = random_values<float>(rows, 6, 0.0f, 0.3f);
  }
};

std::string name_of(const RnnShape& s) {
  return "batch " + std::to_string(s.batch) + ", steps " + std::to_string(s.steps) + ", hidden " +
         std::to_string(s.hidden);
}

template <class T>
class CudaRnn : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaRnn, Types);

TYPED_TEST(CudaRnn, LstmIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const RnnShape& s : kShapes) {
    const Layer<T> layer(s, 4);
    const std::int64_t states = layer.width * s.hidden;
    for (const bool has_bias : {true, false}) {
      const kernels::LstmWeights<T> weights{layer.w_ih.data(), layer.w_hh.data(),
                                            has_bias ? layer.b_ih.data() : nullptr,
                                            has_bias ? layer.b_hh.data() : nullptr};
      std::vector<T> y(size(states)), dgates(size(4 * states));
      std::vector<float> gates(size(4 * states)), cells(size(states));
      CpuScratch forward(kernels::lstm_forward_scratch_bytes<T>(s, s.batch)),
          backward(kernels::lstm_input_grad_scratch_bytes<T>(s, s.batch));
      kernels::lstm_forward<T>(s, weights, layer.x.data(), nullptr, nullptr, y.data(), nullptr, nullptr,
                               {gates.data(), cells.data()}, forward.data(), 0, s.batch);
      kernels::lstm_input_grad<T>(s, weights, {gates.data(), cells.data()}, nullptr, layer.dy.data(), nullptr, nullptr,
                                  dgates.data(), nullptr, nullptr, nullptr, backward.data(), 0, s.batch);

      const std::vector<float> pre = products(layer.x, layer.w_ih, layer.width, layer.rows, s.inputs, layer.rows);
      DeviceArray<T> w_hh(layer.w_hh), dy(layer.dy), got_y(y.size()), y_again(y.size()), got_dgates(dgates.size()),
          dgates_again(dgates.size());
      DeviceArray<float> gpu_pre(pre), in_place(pre), b_ih(layer.b_ih), b_hh(layer.b_hh), got_gates(gates.size()),
          got_cells(cells.size()), cpu_gates(gates), cpu_cells(cells);
      DeviceArray<std::byte> scratch(cuda::rnn_scratch_bytes(s));
      const auto run_forward = [&](const float* from, T* to, float* gates_to) {
        cuda::lstm_forward<T>(nullptr, s, w_hh.data(), has_bias ? b_ih.data() : nullptr,
                              has_bias ? b_hh.data() : nullptr, from, to, gates_to, got_cells.data(), scratch.data());
      };
      run_forward(gpu_pre.data(), got_y.data(), got_gates.data());
      const std::string what = name_of(s);
      expect_close(got_y.download(), y, kRnnBound<T>, what + ": y");
      expect_close(got_gates.download(), gates, kRnnBound<T>, what + ": gates");
      expect_close(got_cells.download(), cells, kRnnBound<T>, what + ": cells");
      run_forward(in_place.data(), y_again.data(), in_place.data());
      expect_same_bytes(got_y.download(), y_again.download(), what + ": y");
      expect_same_bytes(got_gates.download(), in_place.download(), what + ": gates");
      for (T* to : {got_dgates.data(), dgates_again.data()}) {
        cuda::lstm_input_grad<T>(nullptr, s, w_hh.data(), cpu_gates.data(), cpu_cells.data(), dy.data(), to,
                                 scratch.data());
      }
      expect_close(got_dgates.download(), dgates, kRnnBound<T>, what + ": dgates");
      expect_same_bytes(got_dgates.download(), dgates_again.download(), what + ": dgates");
      if (this->HasFailure()) return;
    }
  }
}

TYPED_TEST(CudaRnn, GruIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const RnnShape& s : kShapes) {
    const Layer<T> layer(s, 3);
    const std::int64_t states = layer.width * s.hidden;
    for (const bool has_bias : {true, false}) {
      const kernels::GruWeights<T> weights{layer.w_ih.data(), layer.w_hh.data(), has_bias ? layer.b_ih.data() : nullptr,
                                           has_bias ? layer.b_hh.data() : nullptr};
      std::vector<T> y(size(states)), dgates(size(4 * states));
      std::vector<float> gates(size(4 * states));
      CpuScratch forward(kernels::gru_forward_scratch_bytes<T>(s, s.batch)),
          backward(kernels::gru_input_grad_scratch_bytes<T>(s, s.batch));
      kernels::gru_forward<T>(s, weights, layer.x.data(), nullptr, y.data(), nullptr, gates.data(), forward.data(), 0,
                              s.batch);
      kernels::gru_input_grad<T>(s, weights, gates.data(), y.data(), nullptr, layer.dy.data(), nullptr, dgates.data(),
                                 nullptr, nullptr, backward.data(), 0, s.batch);

      DeviceArray<T> w_hh(layer.w_hh), dy(layer.dy), cpu_y(y), got_y(y.size()), y_again(y.size()),
          got_dgates(dgates.size()), dgates_again(dgates.size());
      DeviceArray<float> pre(products(layer.x, layer.w_ih, layer.width, layer.rows, s.inputs, layer.rows));
      DeviceArray<float> in_place(products(layer.x, layer.w_ih, layer.width, layer.rows, s.inputs, 4 * s.hidden));
      DeviceArray<float> b_ih(layer.b_ih), b_hh(layer.b_hh), got_gates(gates.size()), cpu_gates(gates);
      DeviceArray<std::byte> scratch(cuda::rnn_scratch_bytes(s));
      const auto run_forward = [&](const float* from, std::int64_t stride, T* to, float* gates_to) {
        cuda::gru_forward<T>(nullptr, s, w_hh.data(), has_bias ? b_ih.data() : nullptr,
                             has_bias ? b_hh.data() : nullptr, from, stride, to, gates_to, scratch.data());
      };
      run_forward(pre.data(), layer.rows, got_y.data(), got_gates.data());
      const std::string what = name_of(s);
      expect_close(got_y.download(), y, kRnnBound<T>, what + ": y");
      expect_close(got_gates.download(), gates, kRnnBound<T>, what + ": gates");
      run_forward(in_place.data(), 4 * s.hidden, y_again.data(), in_place.data());
      expect_same_bytes(got_y.download(), y_again.download(), what + ": y");
      expect_same_bytes(got_gates.download(), in_place.download(), what + ": gates");
      for (T* to : {got_dgates.data(), dgates_again.data()}) {
        cuda::gru_input_grad<T>(nullptr, s, w_hh.data(), cpu_gates.data(), cpu_y.data(), dy.data(), to, scratch.data());
      }
      expect_close(got_dgates.download(), dgates, kRnnBound<T>, what + ": dgates");
      expect_same_bytes(got_dgates.download(), dgates_again.download(), what + ": dgates");
      if (this->HasFailure()) return;
    }
  }
}

// Both paths as a graph that is replayed: the counters of the persistent kernel start anew each time.
TYPED_TEST(CudaRnn, ReplaysFromAGraph) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  const RnnShape s{16, 8, 4, 256};
  const Layer<T> layer(s, 4);
  const std::int64_t states = layer.width * s.hidden;
  DeviceArray<T> w_hh(layer.w_hh), dy(layer.dy), y(size(states)), dgates(size(4 * states));
  DeviceArray<float> pre(products(layer.x, layer.w_ih, layer.width, layer.rows, s.inputs, layer.rows)),
      gates(size(4 * states)), cells(size(states));
  DeviceArray<std::byte> scratch(cuda::rnn_scratch_bytes(s));
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  const auto run = [&] {
    cuda::lstm_forward<T>(stream, s, w_hh.data(), nullptr, nullptr, pre.data(), y.data(), gates.data(), cells.data(),
                          scratch.data());
    cuda::lstm_input_grad<T>(stream, s, w_hh.data(), gates.data(), cells.data(), dy.data(), dgates.data(),
                             scratch.data());
  };
  run();
  check_cuda(cudaStreamSynchronize(stream), "run");
  const std::vector<T> want_y = y.download(), want_dgates = dgates.download();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
  run();
  check_cuda(cudaStreamEndCapture(stream, &graph), "end capture");
  check_cuda(cudaGraphInstantiate(&replay, graph, 0), "instantiate");
  for (int i = 0; i < 3; ++i) {
    check_cuda(cudaMemset(y.data(), 0xFF, want_y.size() * sizeof(T)), "poison");
    check_cuda(cudaMemset(dgates.data(), 0xFF, want_dgates.size() * sizeof(T)), "poison");
    check_cuda(cudaDeviceSynchronize(), "poison");
    check_cuda(cudaGraphLaunch(replay, stream), "replay");
    check_cuda(cudaStreamSynchronize(stream), "replay");
    expect_same_bytes(y.download(), want_y, "y");
    expect_same_bytes(dgates.download(), want_dgates, "dgates");
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TYPED_TEST(CudaRnn, ShiftsStates) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const RnnShape& s : kShapes) {
    const std::vector<T> y = random_values<T>(s.batch * s.steps * s.hidden, 1);
    std::vector<T> want(y.size(), from_float<T>(0.0f));
    for (std::int64_t b = 0; b < s.batch; ++b) {
      const auto first = y.begin() + b * s.steps * s.hidden;
      std::copy(first, first + (s.steps - 1) * s.hidden, want.begin() + (b * s.steps + 1) * s.hidden);
    }
    DeviceArray<T> from(y), to(y.size());
    cuda::shifted_states<T>(nullptr, s, from.data(), to.data());
    expect_same_bytes(to.download(), want, name_of(s));
  }
}

TYPED_TEST(CudaRnn, BiasGradientsAreSums) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const RnnShape& s : {RnnShape{3, 5, 7, 8}, RnnShape{16, 64, 1, 512}, RnnShape{5, 7, 3, 33}}) {
    const std::int64_t width = 4 * s.hidden, h = s.hidden;
    const std::vector<T> dgates = random_values<T>(s.batch * s.steps * width, 1, 0.1f);
    std::vector<double> sums(size(width));
    for (std::size_t i = 0; i < dgates.size(); ++i) sums[i % sums.size()] += static_cast<double>(to_float(dgates[i]));
    std::vector<float> lstm;
    for (const double sum : sums) lstm.push_back(static_cast<float>(sum));
    const std::vector<float> gru_ih(lstm.begin(), lstm.begin() + 3 * h);
    std::vector<float> gru_hh(lstm.begin(), lstm.begin() + 2 * h);
    gru_hh.insert(gru_hh.end(), lstm.begin() + 3 * h, lstm.end());
    DeviceArray<T> gpu_dgates(dgates);
    DeviceArray<std::byte> scratch(cuda::rnn_bias_grad_scratch_bytes(s));
    DeviceArray<float> lstm_ih(lstm.size()), lstm_hh(lstm.size()), got_ih(gru_ih.size()), got_hh(gru_hh.size()),
        again(gru_hh.size());
    cuda::lstm_bias_grad<T>(nullptr, s, gpu_dgates.data(), lstm_ih.data(), lstm_hh.data(), scratch.data());
    cuda::gru_bias_grad<T>(nullptr, s, gpu_dgates.data(), got_ih.data(), got_hh.data(), scratch.data());
    cuda::gru_bias_grad<T>(nullptr, s, gpu_dgates.data(), nullptr, again.data(), scratch.data());
    expect_close(lstm_ih.download(), lstm, 1e-5f, "LSTM db_ih");
    expect_same_bytes(lstm_ih.download(), lstm_hh.download(), "LSTM db_hh");
    expect_close(got_ih.download(), gru_ih, 1e-5f, "GRU db_ih");
    expect_close(got_hh.download(), gru_hh, 1e-5f, "GRU db_hh");
    expect_same_bytes(got_hh.download(), again.download(), "GRU db_hh");
  }
}

}  // namespace
}  // namespace overtake
