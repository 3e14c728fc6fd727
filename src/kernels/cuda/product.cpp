#include "kernels/cuda/product.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/random_fill.h"

namespace overtake::cuda {
namespace {

constexpr std::size_t kMostCandidates = 16;  // the heuristic's order is good: later ones hardly ever win
constexpr std::uint32_t kAlignment = 16;     // bytes, of every matrix

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)));
}

// One per process: it holds what was loaded of the library.
cublasLtHandle_t handle() {
  static const cublasLtHandle_t shared = [] {
    cublasLtHandle_t h = nullptr;
    check(cublasLtCreate(&h), "starting the library");
    return h;
  }();
  return shared;
}

cudaDataType_t type_of(ElementType type) { return type == ElementType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

cublasLtEpilogue_t epilogue_of(ProductExtra extra) {
  switch (extra) {
    case ProductExtra::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case ProductExtra::bias_relu:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    case ProductExtra::bias_gelu_tanh:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case ProductExtra::gelu_tanh_grad:
      return CUBLASLT_EPILOGUE_DGELU;
    case ProductExtra::none:
      break;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool has_vector(ProductExtra extra) { return extra != ProductExtra::none && extra != ProductExtra::gelu_tanh_grad; }
bool has_saved(ProductExtra extra) {
  return extra == ProductExtra::bias_gelu_tanh || extra == ProductExtra::gelu_tanh_grad;
}

// A matrix as it lies in memory, in elements.
struct Stored {
  std::int64_t rows, columns, pitch, stride;
};
Stored stored(std::int64_t rows, std::int64_t columns, std::int64_t pitch, std::int64_t stride) {
  if (pitch == 0) pitch = columns;
  return {rows, columns, pitch, stride == 0 ? rows * pitch : stride};
}
Stored stored_a(const ProductShape& s) {
  return stored(s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k, s.lda, s.stride_a);
}
Stored stored_b(const ProductShape& s) {
  return stored(s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n, s.ldb, s.stride_b);
}
Stored stored_c(const ProductShape& s) { return stored(s.m, s.n, s.ldc, s.stride_c); }

// Elements from the first to the last of all batches.
std::int64_t extent(const Stored& m, std::int64_t batches) {
  return (batches - 1) * m.stride + (m.rows - 1) * m.pitch + m.columns;
}

// An algorithm as hexadecimal digits, and back.
constexpr std::size_t kDigits = 16;  // of a word

std::string to_text(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

std::optional<cublasLtMatmulAlgo_t> from_text(std::string_view text) {
  cublasLtMatmulAlgo_t algorithm;
  if (text.size() != kDigits * std::size(algorithm.data)) return std::nullopt;
  for (std::uint64_t& word : algorithm.data) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + kDigits, word, 16);
    if (error != std::errc{} || end != text.data() + kDigits) return std::nullopt;
    text.remove_prefix(kDigits);
  }
  return algorithm;
}

// All that the fastest algorithm depends on.
std::string key_of(const ProductShape& s, bool deterministic, std::size_t most_workspace) {
  const Stored a = stored_a(s), b = stored_b(s), c = stored_c(s);
  return fmt::format(
      "product {}x{}x{} batches {} {}{} {} {} {} vector {} extra {} {} rows {} {} {} strides {} {} {} {} workspace {}",
      s.m, s.n, s.k, s.batches, s.trans_a ? 't' : 'n', s.trans_b ? 't' : 'n', name_of(s.a), name_of(s.b), name_of(s.c),
      name_of(s.vector), static_cast<int>(s.extra), s.tf32 ? "tf32" : "full", a.pitch, b.pitch, c.pitch, a.stride,
      b.stride, c.stride, deterministic ? "ordered" : "any", most_workspace);
}

}  // namespace

// The library is column-major: our row-major c = a b is its c' = b' a', so factors change places.
struct Product::Plan {
  explicit Plan(const ProductShape& s) : shape(s) {
    const cublasComputeType_t compute = s.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F), "describing a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, s.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, s.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(s.extra));
    if (has_vector(s.extra)) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(s.vector));
    if (has_saved(s.extra)) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.n);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(s.c));
      if (s.batches > 1) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, s.m * s.n);
    }
    first = layout(s.b, stored_b(s));
    second = layout(s.a, stored_a(s));
    result = layout(s.c, stored_c(s));
  }
  ~Plan() {
    cublasLtMatrixLayoutDestroy(result);
    cublasLtMatrixLayoutDestroy(second);
    cublasLtMatrixLayoutDestroy(first);
    cublasLtMatmulDescDestroy(operation);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "setting an attribute");
  }

  cublasLtMatrixLayout_t layout(ElementType type, const Stored& m) const {
    cublasLtMatrixLayout_t l = nullptr;
    check(cublasLtMatrixLayoutCreate(&l, type_of(type), static_cast<std::uint64_t>(m.columns),
                                     static_cast<std::uint64_t>(m.rows), m.pitch),
          "describing a matrix");
    const auto batches = static_cast<std::int32_t>(shape.batches);
    check(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches), "batches");
    check(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.stride, sizeof m.stride),
          "batches");
    return l;
  }

  // What the library's heuristic thinks best, at least one.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(std::size_t most, std::size_t most_workspace,
                                                          bool deterministic) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "stating preferences");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "stating preferences");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(most_workspace));
    for (const auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(which, kAlignment);
    // Parts of a sum may be kept as float32 only. In place, they are added in the order in which they happen to end.
    std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (shape.c == ElementType::f32) schemes |= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    if (!deterministic) schemes |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
    std::vector<cublasLtMatmulHeuristicResult_t> found(most);
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle(), operation, first, second, result, result, preference, static_cast<int>(most), found.data(), &count);
    cublasLtMatmulPreferenceDestroy(preference);
    found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(count) : 0);
    std::erase_if(found, [](const auto& one) { return one.state != CUBLAS_STATUS_SUCCESS; });
    if (found.empty())
      throw std::runtime_error(fmt::format("cuBLASLt has no algorithm for a product [{}, {}] x [{}, {}] in {} batches",
                                           shape.m, shape.k, shape.k, shape.n, shape.batches));
    return found;
  }

  void choose(Tuning& tuning, std::size_t most_workspace) {
    const bool deterministic = tuning.options().deterministic;
    const std::string key = key_of(shape, deterministic, most_workspace);
    if (!tuning.options().measure) {
      const auto found =
          candidates(tuning.options().parts.empty() ? 1 : kMostCandidates, most_workspace, deterministic);
      const auto usable = std::ranges::find_if(found, [&](const auto& one) { return can_run(one, tuning); });
      if (usable == found.end()) throw std::runtime_error(fmt::format("cuBLASLt: no part of the GPU can run {}", key));
      choice = *usable;
      return;
    }
    if (const auto kept = tuning.find(key); kept && take(*kept, most_workspace) && can_run(choice, tuning)) return;
    const auto found = candidates(kMostCandidates, most_workspace, deterministic);
    choice = found.front();
    std::optional<Fastest> best;
    try {
      best = fastest(found, tuning);
    } catch (const std::runtime_error& error) {
      tuning.note(fmt::format("{}: not measured: {}", key, error.what()));
      return;
    }
    if (!best) throw std::runtime_error(fmt::format("cuBLASLt: none of the algorithms for {} ran", key));
    choice = found[best->candidate];
    microseconds = best->microseconds;
    tuning.keep(key, to_text(choice.algo));
  }

  // Makes the algorithm kept as `text` the choice, if it can be.
  bool take(const std::string& text, std::size_t most_workspace) {
    const std::optional<cublasLtMatmulAlgo_t> algorithm = from_text(text);
    if (!algorithm) return false;
    cublasLtMatmulHeuristicResult_t checked{};
    if (cublasLtMatmulAlgoCheck(handle(), operation, first, second, result, result, &*algorithm, &checked) !=
            CUBLAS_STATUS_SUCCESS ||
        checked.workspaceSize > most_workspace)
      return false;
    checked.algo = *algorithm;
    choice = checked;
    return true;
  }

  // On every part of the GPU that it must run on.
  bool can_run(const cublasLtMatmulHeuristicResult_t& way, Tuning& tuning) const {
    return tuning.options().parts.empty() || fastest({way}, tuning).has_value();
  }

  std::optional<Fastest> fastest(const std::vector<cublasLtMatmulHeuristicResult_t>& found, Tuning& tuning) const {
    const ProductShape& s = shape;
    std::size_t most = 0;
    for (const auto& one : found) most = std::max(most, one.workspaceSize);
    const TemporaryArray a(s.a, extent(stored_a(s), s.batches), 1), b(s.b, extent(stored_b(s), s.batches), 2),
        c(s.c, extent(stored_c(s), s.batches), 3), vector(s.vector, has_vector(s.extra) ? s.n : 1, 4),
        saved(s.c, has_saved(s.extra) ? s.batches * s.m * s.n : 1, 5), workspace(most);
    const ProductOperands operands{a.data(), b.data(), c.data(), vector.data(), saved.data()};
    return tuning.fastest_of(found.size(), [&](std::size_t i, cudaStream_t stream) {
      enqueue(stream, found[i], operands, 1, workspace.data());
    });
  }

  void enqueue(cudaStream_t stream, const cublasLtMatmulHeuristicResult_t& way, const ProductOperands& o, float scale,
               void* workspace) const {
    const std::lock_guard lock(pointers);
    if (has_vector(shape.extra)) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.vector);
    if (has_saved(shape.extra)) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.saved);
    const float beta = o.add != nullptr ? 1 : 0;
    const void* const added = o.add != nullptr ? o.add : o.c;
    check(cublasLtMatmul(handle(), operation, &scale, o.b, first, o.a, second, &beta, added, result, o.c, result,
                         &way.algo, workspace, way.workspaceSize, stream),
          "running a product");
  }

  ProductShape shape;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulHeuristicResult_t choice{};
  double microseconds = 0;
  mutable std::mutex pointers;  // of vector and saved, which are part of the description
};

Product::Product(const ProductShape& shape, Tuning& tuning, std::size_t most_workspace)
    : plan_(std::make_unique<Plan>(shape)) {
  plan_->choose(tuning, most_workspace);
}
Product::~Product() = default;
Product::Product(Product&&) noexcept = default;
Product& Product::operator=(Product&&) noexcept = default;

std::size_t Product::workspace_bytes() const { return plan_->choice.workspaceSize; }
double Product::microseconds() const { return plan_->microseconds; }

void Product::run(cudaStream_t stream, const ProductOperands& operands, float scale, void* workspace) const {
  require_aligned("product", {operands.a, operands.b, operands.c, operands.add});
  plan_->enqueue(stream, plan_->choice, operands, scale, workspace);
}

}  // namespace overtake::cuda
