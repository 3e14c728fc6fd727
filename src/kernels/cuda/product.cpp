#include "kernels/cuda/product.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <array>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace overtake::cuda {
namespace {

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

cudaDataType_t type_of(ProductType type) { return type == ProductType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

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
    case ProductExtra::sum_of_a:
      return CUBLASLT_EPILOGUE_BGRADB;  // the library's second factor is our first
    case ProductExtra::none:
      break;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool has_vector(ProductExtra extra) { return extra != ProductExtra::none && extra != ProductExtra::gelu_tanh_grad; }
bool has_saved(ProductExtra extra) {
  return extra == ProductExtra::bias_gelu_tanh || extra == ProductExtra::gelu_tanh_grad;
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
    }
    first = layout(s.b, s.trans_b ? s.k : s.n, s.trans_b ? s.n : s.k, s.k * s.n);
    second = layout(s.a, s.trans_a ? s.m : s.k, s.trans_a ? s.k : s.m, s.m * s.k);
    result = layout(s.c, s.n, s.m, s.m * s.n);
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

  cublasLtMatrixLayout_t layout(ProductType type, std::int64_t rows, std::int64_t columns, std::int64_t stride) const {
    cublasLtMatrixLayout_t l = nullptr;
    check(cublasLtMatrixLayoutCreate(&l, type_of(type), static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), rows),
          "describing a matrix");
    const auto batches = static_cast<std::int32_t>(shape.batches);
    check(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches), "batches");
    check(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
          "batches");
    return l;
  }

  void choose(std::size_t most_workspace) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "stating preferences");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "stating preferences");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(most_workspace));
    // In place, parts of a sum are added in the order in which they happen to end.
    const auto schemes =
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle(), operation, first, second, result, result,
                                                                 preference, 1, &choice, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0)
      throw std::runtime_error(fmt::format("cuBLASLt has no algorithm for a product [{}, {}] x [{}, {}] in {} batches",
                                           shape.m, shape.k, shape.k, shape.n, shape.batches));
  }

  ProductShape shape;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulHeuristicResult_t choice{};
  mutable std::mutex pointers;  // of vector and saved, which are part of the description
};

Product::Product(const ProductShape& shape, std::size_t most_workspace) : plan_(std::make_unique<Plan>(shape)) {
  plan_->choose(most_workspace);
}
Product::~Product() = default;
Product::Product(Product&&) noexcept = default;
Product& Product::operator=(Product&&) noexcept = default;

std::size_t Product::workspace_bytes() const { return plan_->choice.workspaceSize; }

void Product::run(cudaStream_t stream, const ProductOperands& o, float scale, void* workspace) const {
  const Plan& p = *plan_;
  const std::lock_guard lock(p.pointers);
  if (has_vector(p.shape.extra)) p.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.vector);
  if (has_saved(p.shape.extra)) p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.saved);
  const float zero = 0;
  check(cublasLtMatmul(handle(), p.operation, &scale, o.b, p.first, o.a, p.second, &zero, o.c, p.result, o.c, p.result,
                       &p.choice.algo, workspace, p.choice.workspaceSize, stream),
        "running a product");
}

}  // namespace overtake::cuda
