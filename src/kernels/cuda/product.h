#pragma once
// Matrix products through cuBLASLt, row-major: c[m, n] = scale * op(a)[m, k] op(b)[k, n], many at once where there are
// batches, with what comes before or after in the same kernel. Algorithms whose sums have no fixed order are left out
// unless the tuning allows them.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cuda/element_type.h"
#include "kernels/cuda/tuning.h"

namespace overtake::cuda {

// What else the kernel does. Sums are float32; the bias is of `vector`'s type.
enum class ProductExtra : std::uint8_t {
  none,
  bias,            // c = a b + vector[n]
  bias_relu,       // c = max(a b + vector[n], 0)
  bias_gelu_tanh,  // saved = a b + vector[n], c = gelu_tanh(saved)
  gelu_tanh_grad   // c = (a b) * gelu_tanh'(saved)
};

struct ProductShape {
  std::int64_t m = 1, n = 1, k = 1, batches = 1;
  bool trans_a = false, trans_b = false;  // a is stored as [k, m], b as [n, k]
  // Elements from one stored row to the next, so that a matrix may be some columns of a wider one; 0: dense.
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  // Elements from one batch to the next; 0: the stored rows of one after those of the other.
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  ElementType a = ElementType::f32, b = ElementType::f32, c = ElementType::f32, vector = ElementType::f32;
  ProductExtra extra = ProductExtra::none;
  bool tf32 = false;  // float32 factors rounded to 10 bits of fraction for the matrix units
  bool operator==(const ProductShape&) const = default;
};

// All at 16-byte boundaries, parts of wider matrices too.
struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* vector = nullptr;
  void* saved = nullptr;      // [batches, m, n], dense, of c's type: written by bias_gelu_tanh, read by gelu_tanh_grad
  const void* add = nullptr;  // lies like c, or is c: added to the product, with the bits that adding it later gives
};

// A product made ready for one device. Any thread may run it.
class Product {
 public:
  // A std::runtime_error where cuBLASLt has no algorithm for the shape within the workspace.
  Product(const ProductShape& shape, Tuning& tuning, std::size_t most_workspace);
  ~Product();
  Product(Product&&) noexcept;
  Product& operator=(Product&&) noexcept;

  std::size_t workspace_bytes() const;
  double microseconds() const;  // as measured; 0 if the choice was kept from before or nothing is measured
  // The workspace must not be used by anything that may run at the same time.
  void run(cudaStream_t stream, const ProductOperands& operands, float scale, void* workspace) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace overtake::cuda
