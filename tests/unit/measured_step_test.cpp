#include "machine/measured_step.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "command.h"

namespace overtake {
namespace {

TEST(MeasuredStep, ThereAndBack) {
  MeasuredStep step{.key = "k", .of = "lenet, 2 samples", .device = "a device", .step = {}, .ns = {1234}};
  step.step.model = "lenet";
  const BufferId x = step.step.add_buffer("x", {2, 3}, DType::f32, Role::input);
  const BufferId y = step.step.add_buffer("y", {2, 3}, DType::f32, Role::output);
  step.step.add_task(Kind::forward, Op::reshape, step.step.add_layer("flatten"), 0, {&x, 1}, {&y, 1});
  const tests::ScratchFolder folder;
  write_file_atomically(folder / "step.json", save_json(step));
  const MeasuredStep read = load_measured_step(folder / "step.json");
  EXPECT_EQ(read.key, step.key);
  EXPECT_EQ(read.of, step.of);
  EXPECT_EQ(read.device, step.device);
  EXPECT_EQ(read.ns, step.ns);
  EXPECT_EQ(save_json(read.step), save_json(step.step));

  for (const std::vector<std::int64_t>& wrong : {std::vector<std::int64_t>{1, 2}, {}, {-1}}) {
    step.ns = wrong;
    write_file_atomically(folder / "step.json", save_json(step));
    EXPECT_THROW(load_measured_step(folder / "step.json"), UserError);
  }
  step.ns = {1234};
  auto file = nlohmann::json::parse(save_json(step));
  const auto refused = [&](const std::string& text, const std::string& word) {
    write_file_atomically(folder / "step.json", text);
    try {
      load_measured_step(folder / "step.json");
      ADD_FAILURE() << word;
    } catch (const UserError& e) {
      for (const std::string& part : {std::string("step.json"), word})
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refused("{", "damaged or no profile");
  file["measured_step"] = 99;
  refused(file.dump(), "format 99");
  file["measured_step"] = 1;
  file["step"]["tasks"][0][1] = "no such op";
  refused(file.dump(), "the step in it");
}

}  // namespace
}  // namespace overtake
