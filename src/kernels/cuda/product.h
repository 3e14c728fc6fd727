#pragma once
// Matrix products through cuBLASLt, row-major: c[m, n] = scale * op(a)[m, k] op(b)[k, n], many at once where there are
// batches, with what comes before or after in the same kernel. Algorithms whose sums have no fixed order are left out.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bf16.h"

namespace overtake::cuda {

enum class ProductType : std::uint8_t { f32, bf16 };

// What else the kernel does. Sums are float32; vectors (bias and its gradient) are of `vector`'s type.
enum class ProductExtra : std::uint8_t {
  none,
  bias,            // c = a b + vector[n]
  bias_relu,       // c = max(a b + vector[n], 0)
  bias_gelu_tanh,  // saved = a b + vector[n], c = gelu_tanh(saved)
  gelu_tanh_grad,  // c = (a b) * gelu_tanh'(saved)
  sum_of_a         // vector[m] = op(a) summed over k: the gradient of a bias beside the gradient of its weight
};

struct ProductShape {
  std::int64_t m = 1, n = 1, k = 1, batches = 1;
  bool trans_a = false, trans_b = false;  // a is stored as [k, m], b as [n, k]
  ProductType a = ProductType::f32, b = ProductType::f32, c = ProductType::f32, vector = ProductType::f32;
  ProductExtra extra = ProductExtra::none;
  bool tf32 = false;  // float32 factors rounded to 10 bits of fraction for the matrix units
  bool operator==(const ProductShape&) const = default;
};

struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  void* vector = nullptr;  // read (bias) or written (sum_of_a)
  void* saved = nullptr;   // [m, n], of c's type: written by bias_gelu_tanh, read by gelu_tanh_grad
};

// A product made ready for one device. Any thread may run it.
class Product {
 public:
  // A std::runtime_error where cuBLASLt has no algorithm for the shape within the workspace.
  Product(const ProductShape& shape, std::size_t most_workspace);
  ~Product();
  Product(Product&&) noexcept;
  Product& operator=(Product&&) noexcept;

  std::size_t workspace_bytes() const;
  // Enqueues it. The workspace must not be used by anything that may run at the same time.
  void run(cudaStream_t stream, const ProductOperands& operands, float scale, void* workspace) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace overtake::cuda
