#pragma once
// What every oneDNN-backed kernel needs: the engine, layouts in both notations, and a call with a caller's scratch.

#include <initializer_list>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <string>

#include "overtake/layout.h"

namespace overtake::kernels {

// The one CPU engine of the process; oneDNN allows its use from any thread.
const dnnl::engine& onednn_engine();

// oneDNN splits its sums by the number of OpenMP threads at creation. InternalError unless the calling thread is set to
// one thread, so that every sum has one order.
void require_one_openmp_thread();

dnnl::memory::data_type onednn_type(bool bf16);

// The memory descriptor of a tensor of these logical dimensions in this layout, and back (canonical, see layout.h).
dnnl::memory::desc to_onednn(const Layout& layout, std::span<const std::int64_t> dims, bool bf16);
Layout from_onednn(const dnnl::memory::desc& desc);

// A primitive with the descriptor of its scratch. Thread-safe: every call brings its own memory.
class OneDnnPrimitive {
 public:
  struct Argument {
    int id;  // DNNL_ARG_...
    dnnl::memory::desc desc;
    const void* data;  // written to if the primitive's argument is an output
  };

  template <class Primitive, class Description>
  static OneDnnPrimitive make(const Description& description) {
    return OneDnnPrimitive(Primitive(description), description.scratchpad_desc(), description.impl_info_str());
  }

  std::size_t scratch_bytes() const { return scratch_.get_size(); }
  const std::string& implementation() const { return implementation_; }  // oneDNN's name, "brgconv:avx512_core"

  // scratch: scratch_bytes() bytes aligned to 64, may be null if that is 0.
  void run(std::initializer_list<Argument> arguments, void* scratch) const;

 private:
  OneDnnPrimitive(dnnl::primitive primitive, dnnl::memory::desc scratch, std::string implementation)
      : primitive_(std::move(primitive)), scratch_(std::move(scratch)), implementation_(std::move(implementation)) {}

  dnnl::primitive primitive_;
  dnnl::memory::desc scratch_;
  std::string implementation_;
};

// Attributes every primitive is made with: scratch comes from the caller.
dnnl::primitive_attr caller_scratch();

}  // namespace overtake::kernels
