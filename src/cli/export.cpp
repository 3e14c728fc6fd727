#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/say.h"
#include "train/weights.h"

namespace overtake {
namespace {

struct ExportFlags {
  std::string checkpoint;
  std::string output;
  bool json = false, overwrite = false;
};

int export_weights(const ExportFlags& flags) {
  check_output({"--output", flags.output, kWeights}, flags.overwrite);
  const CheckpointState state = load_checkpoint(flags.checkpoint);
  const std::vector<NamedTensor> tensors = exported_weights(state);
  const WrittenTensors written = write_safetensors(flags.output, tensors, {{"format", "pt"}});
  if (flags.json)
    say("{}", dumped({{"file", flags.output},
                      {"model", state.model},
                      {"step", state.step},
                      {"tensors", tensors.size()},
                      {"bytes", written.bytes}}));
  else
    say("{}: {} tensors of {} after step {}, {}\n", flags.output, tensors.size(), state.model, state.step,
        format_bytes(written.bytes));
  return 0;
}

}  // namespace

void add_export_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<ExportFlags>();
  CLI::App* c = app.add_subcommand("export", "write trained weights under the names they came with");
  c->add_option("CHECKPOINT", flags->checkpoint,
                "what train --save wrote, for example runs/cnn, or one of its generations")
      ->required();
  c->add_option("-o,--output", flags->output, "the .safetensors file to write")->required();
  c->add_flag("--overwrite", flags->overwrite, "replace the file if it is there already");
  c->add_flag("--json", flags->json, "one JSON object as the last line");
  c->footer(
      "PyTorch reads it: model.load_state_dict(safetensors.torch.load_file(\"cnn.safetensors\"))\n"
      "Example:\n  overtake export runs/cnn -o cnn.safetensors");
  c->callback([flags, &exit_code] { exit_code = export_weights(*flags); });
}

}  // namespace overtake
