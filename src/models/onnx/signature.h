#pragma once
// The list of a module's tensors that PyTorch's dynamo exporter (torch.export) leaves in a file's metadata: every
// parameter and buffer, whether the file still holds it or not.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace overtake::onnx {

struct SignatureTensor {
  enum class Kind : std::uint8_t {
    parameter,  // an nn.Parameter, whether or not it requires a gradient: the list does not say
    buffer,     // never trained
    constant,   // a tensor that is in no state_dict
  };
  std::string argument = {};  // as recorded calls name it (Node::origin): "p_fc_weight"
  std::string name = {};      // in the module: "fc.weight"
  Kind kind = Kind::parameter;
  bool is_persistent = true;  // in the state_dict; buffers only
  bool is_updated = false;    // a buffer that the forward pass writes, as running statistics are
};

class Signature {
 public:
  // A user error that names `path` for a text of another form.
  Signature(std::string_view text, const std::string& path);

  const std::vector<SignatureTensor>& tensors() const { return tensors_; }
  // Null where there is none. Tied parameters are listed under all their names; calls name one of them.
  const SignatureTensor* of_argument(std::string_view argument) const;
  const SignatureTensor* of_name(std::string_view name) const;
  // Whether calls know the value without anyone having made it: a tensor of the list, or an input of the model.
  bool is_given(std::string_view argument) const;

  // The entry of metadata that holds it.
  static constexpr std::string_view kKey = "pkg.torch.export.ExportedProgram.graph_signature";

 private:
  void add_input(std::string_view kind, std::string_view argument, std::string_view spec, const std::string& path);
  void add_output(std::string_view kind, std::string_view spec);
  void read_lines(std::string_view text, const std::string& path);
  void read_specs(std::string_view text, const std::string& path);

  std::vector<SignatureTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_argument_, by_name_;
  std::set<std::string, std::less<>> inputs_;  // what the user gives
};

}  // namespace overtake::onnx
