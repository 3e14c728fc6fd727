#include "exec/backend.h"

#include <charconv>

#include "base/error.h"

namespace overtake {

Precision precision_from_string(const std::string& name) {
  if (name == "f32") return Precision::f32;
  if (name == "tf32") return Precision::tf32;
  if (name == "bf16") return Precision::bf16;
  fail_user("`precision {}`: no such precision; choose f32, tf32 or bf16", name);
}

const char* to_string(Precision precision) {
  return precision == Precision::f32 ? "f32" : precision == Precision::tf32 ? "tf32" : "bf16";
}

Precision default_precision(const std::string& device) {
  return device.starts_with("cuda") ? Precision::bf16 : Precision::f32;
}

std::unique_ptr<Backend> open_backend(const std::string& device, const BackendOptions& given) {
  BackendOptions options = given;
  if (!options.precision) options.precision = default_precision(device);
  if (device == "cpu") return make_cpu_backend(options);
  if (device == "null") return make_null_backend(options);
  if (device == "cuda") return make_cuda_backend(0, options);
  if (device.starts_with("cuda:")) {
    int gpu = -1;
    const char *first = device.data() + 5, *last = device.data() + device.size();
    const auto [end, error] = std::from_chars(first, last, gpu);
    if (error == std::errc() && end == last && gpu >= 0) return make_cuda_backend(gpu, options);
  }
  fail_user("`device {}`: there is no such device; `overtake devices` lists what there is", device);
}

}  // namespace overtake
