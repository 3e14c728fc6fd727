#pragma once
// Checkpoints whose parts cannot pass for those of another step.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "train/checkpoint.h"
#include "train/checkpoint_saver.h"

namespace overtake {

// Every value of every tensor and number is `step`, so parts of two checkpoints cannot pass for one.
inline CheckpointState state_of(std::uint64_t step, std::size_t elements = 1000) {
  CheckpointState state{.step = step,
                        .epoch = step / 10,
                        .batch = step % 10,
                        .seed = 0xFFFFFFFFFFFFFFFFull,
                        .loss = 0.1 + static_cast<double>(step),
                        .model = "lenet",
                        .model_settings = {{"classes", 10}},
                        .settings = {{"optimizer", "adamw"}, {"step", step}}};
  const std::vector<float> values(elements, static_cast<float>(step));
  for (const char* name : {"conv1.weight", "conv1.weight/adam.m"}) {
    state.tensors.push_back(
        owning_tensor(name, StoredType::f32, {static_cast<std::int64_t>(elements)}, std::as_bytes(std::span(values))));
  }
  return state;
}

inline void expect_state(const CheckpointState& state, std::uint64_t step) {
  EXPECT_EQ(state.step, step);
  EXPECT_EQ(state.epoch, step / 10);
  EXPECT_EQ(state.batch, step % 10);
  EXPECT_EQ(state.seed, 0xFFFFFFFFFFFFFFFFull);
  EXPECT_EQ(state.loss, 0.1 + static_cast<double>(step)) << "to the last bit";
  EXPECT_EQ(state.model, "lenet");
  EXPECT_EQ(state.model_settings, nlohmann::json({{"classes", 10}}));
  EXPECT_EQ(state.settings["step"], step);
  ASSERT_EQ(state.tensors.size(), 2u);
  for (const NamedTensor& tensor : state.tensors) {
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    EXPECT_EQ(values, std::vector<float>(values.size(), static_cast<float>(step))) << tensor.name;
  }
}

// A run that saves once and ends, in the place of whatever was there.
inline void save_once(const std::filesystem::path& path, const CheckpointState& state) {
  CheckpointSaver(path, {.overwrite = true}).save(state);
}

}  // namespace overtake
