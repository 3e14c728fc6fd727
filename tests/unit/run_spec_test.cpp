// The table of a run's fields, and all that is made from it.

#include <gtest/gtest.h>

#include <set>

#include "run/field.h"
#include "run/resume.h"
#include "run/spec_file.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

using nlohmann::json;

// Another value than the default that the field may have.
json another_value(const Field& field) {
  const auto make = [&]<class T>(T RunSpec::*member) -> json {
    const T before = RunSpec{}.*member;
    if constexpr (std::is_same_v<T, bool>)
      return !before;
    else if constexpr (std::is_same_v<T, double>)
      return field.bounds.most == 1 ? 0.1234567890123456789 : 12.3e-1 + field.bounds.least;
    else if constexpr (std::is_same_v<T, std::string>)
      return field.choices.empty()
                 ? std::string("say \"\\ä\t\x7f\" # [x] = 1")
                 : std::string(field.choices[field.choices.back() == before ? 0 : field.choices.size() - 1]);
    else if constexpr (std::is_same_v<T, std::vector<std::string>>)
      return field.choices.empty() ? T{"a,b", "\"c\""}
                                   : T{std::string(field.choices[0]), std::string(field.choices[1])};
    else
      return static_cast<T>(field.bounds.least) + 7;
  };
  return std::visit(make, field.member);
}

constexpr std::size_t kFields = 72;

// Whether RunSpec has at least so many members: as many can be given to it.
struct AnyValue {
  template <class T>
  operator T() const;
};
template <std::size_t... I>
constexpr bool has_members(std::index_sequence<I...>) {
  return requires { RunSpec{(static_cast<void>(I), AnyValue{})...}; };
}

const Field& field_called(std::string_view name) {
  const Field* field = find_field(name);
  EXPECT_NE(field, nullptr) << name;
  return *field;
}
void set(RunSpec& spec, std::string_view name, const json& value) { set_value(spec, field_called(name), value); }

std::string toml_error(const std::string& text) {
  return user_error([&] { spec_from_toml(text, "run.toml"); });
}

TEST(RunSpec, EveryRowIsComplete) {
  std::set<std::string_view> names;
  for (const Field& field : fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name << " is there twice";
    EXPECT_FALSE(field.name.empty());
    EXPECT_EQ(field.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string::npos) << field.name;
    EXPECT_FALSE(field.help.empty()) << field.name;
    EXPECT_NE(field.commands, 0) << field.name;
    EXPECT_LT(field.bounds.least, field.bounds.most) << field.name;
    EXPECT_FALSE(description_of(field).empty()) << field.name;
  }
}

// A member that no row has would be lost in files, checkpoints and between ranks.
TEST(RunSpec, EveryMemberHasARow) {
  EXPECT_TRUE(has_members(std::make_index_sequence<kFields>())) << "there are fewer members than rows";
  EXPECT_FALSE(has_members(std::make_index_sequence<kFields + 1>())) << "there are more members than rows";
  EXPECT_EQ(fields().size(), kFields);
  for (std::size_t i = 0; i < fields().size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(fields()[i].member == fields()[j].member) << fields()[i].name;
}

TEST(RunSpec, DefaultsAreTheStructs) {
  const RunSpec read = spec_from_toml("", "empty.toml"), same = spec_from_toml(toml_of(RunSpec{}), "defaults.toml");
  for (const Field& field : fields()) {
    EXPECT_EQ(value_of(read, field), value_of(RunSpec{}, field)) << field.name;
    EXPECT_EQ(value_of(same, field), value_of(RunSpec{}, field)) << field.name;
  }
}

TEST(RunSpec, EveryFieldGoesThroughTomlAndJsonAndBack) {
  RunSpec all;
  for (const Field& field : fields()) {
    RunSpec one;
    const json value = another_value(field);
    ASSERT_NE(value, value_of(one, field)) << field.name;
    set_value(one, field, value);
    set_value(all, field, value);
    EXPECT_EQ(value_of(spec_from_toml(toml_of(one), "one.toml"), field), value) << toml_of(one);
    EXPECT_EQ(value_of(spec_from_json(json::parse(json_of(one).dump())), field), value) << json_of(one);
  }
  EXPECT_EQ(json_of(spec_from_toml(toml_of(all), "all.toml")), json_of(all));
  EXPECT_EQ(json_of(all).size(), fields().size());
}

TEST(RunSpec, LargeSeedsSurviveToml) {
  RunSpec spec;
  spec.seed = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(spec_from_toml(toml_of(spec), "seed.toml").seed, spec.seed);
}

TEST(RunSpec, TextIsReadByType) {
  RunSpec spec;
  set_text(spec, field_called("batch"), {"16"});
  set_text(spec, field_called("lr"), {"1e-3"});
  set_text(spec, field_called("layouts"), {"false"});
  set_text(spec, field_called("freeze"), {"stem.", "fc."});
  EXPECT_EQ(spec.batch, 16);
  EXPECT_EQ(spec.lr, 1e-3);
  EXPECT_FALSE(spec.layouts);
  EXPECT_EQ(spec.freeze, (std::vector<std::string>{"stem.", "fc."}));
  const auto error = [&](std::string_view name, const std::string& word) {
    return user_error([&] { set_text(spec, field_called(name), {word}); });
  };
  EXPECT_TRUE(says(error("batch", "0"), {"`batch 0`", "whole number of at least 1"}));
  EXPECT_TRUE(says(error("batch", "8.5"), {"`batch 8.5`", "whole number"}));
  EXPECT_TRUE(says(error("batch", "eight"), {"`batch eight`"}));
  EXPECT_TRUE(says(error("batch", "-3"), {"`batch -3`"}));
  EXPECT_TRUE(says(error("batch", ""), {"`batch `"}));
  EXPECT_TRUE(says(error("threads", "4294967297"), {"from 1 to 1024"}));
  EXPECT_TRUE(says(error("lr", "nan"), {"`lr nan`"}));
  EXPECT_TRUE(says(error("momentum", "1"), {"at least 0 and below 1"}));
  EXPECT_TRUE(says(error("beta2", "1"), {"`beta2 1`"}));
  EXPECT_TRUE(says(error("optimizer", "lion"), {"`optimizer lion`", "one of sgd, adamw"}));
  EXPECT_TRUE(says(error("skip_pass", "bf16"), {"skip_pass", "bf16", "fuse"}));
  EXPECT_EQ(spec.batch, 16) << "what is refused changes nothing";
}

TEST(RunSpec, WhatIsWrongWithAFileHasItsLine) {
  EXPECT_TRUE(says(toml_error("model = \"cnn\"\nlr = \n"), {"run.toml:2", "not TOML"}));
  EXPECT_TRUE(
      says(toml_error("model = \"cnn\"\n\nlr_shedule = \"cosine\"\n"), {"run.toml:3", "lr_shedule", "lr_schedule?"}));
  EXPECT_TRUE(says(toml_error("batch = \"eight\""), {"run.toml:1", "batch = \"eight\"", "whole number of at least 1"}));
  EXPECT_TRUE(says(toml_error("# a run\nbatch = 0"), {"run.toml:2", "batch = 0"}));
  EXPECT_TRUE(says(toml_error("batch = 8.0"), {"run.toml:1", "whole number"}));
  EXPECT_TRUE(says(toml_error("beta1 = -0.1"), {"beta1 = -0.1", "at least 0 and below 1"}));
  EXPECT_TRUE(says(toml_error("lr = inf"), {"run.toml:1", "lr"}));
  EXPECT_TRUE(says(toml_error("augment = 1"), {"true or false"}));
  EXPECT_TRUE(says(toml_error("freeze = [\"fc.\", 1]"), {"run.toml:1", "list of texts"}));
  EXPECT_TRUE(says(toml_error("freeze = \"fc.\""), {"list of texts"}));
  EXPECT_TRUE(says(toml_error("[data]\nname = \"synthetic\""), {"run.toml:1", "data", "a text"}));
  EXPECT_TRUE(says(toml_error("seed = -1"), {"seed = -1"}));
  EXPECT_EQ(spec_from_toml("lr = 1", "run.toml").lr, 1.0) << "a whole number is a number";
}

TEST(RunSpec, AFileThatIsNotUtf8IsNotWritten) {
  const TemporaryFolder folder;
  RunSpec spec;
  spec.save = "run-\xff";
  const std::filesystem::path file = folder.path() / "run.toml";
  EXPECT_TRUE(says(user_error([&] { write_spec(file, spec); }), {"run.toml", "UTF-8"}));
  EXPECT_FALSE(std::filesystem::exists(file));
  spec.save = "run-ä";
  write_spec(file, spec);
  EXPECT_EQ(read_spec(file).save, spec.save);
  EXPECT_FALSE(user_error([&] { read_spec(folder.path() / "none.toml"); }).empty());
}

TEST(RunSpec, CheckpointsKeepWhatWeightsDependOn) {
  const json kept = kept_in_checkpoint(RunSpec{});
  for (const Field& field : fields()) {
    const bool is_kept = field.on_resume != OnResume::once && !field.has_own_place;
    const bool is_given = !value_of(RunSpec{}, field).is_null();
    EXPECT_EQ(kept.contains(field.name), is_kept && is_given) << field.name;
  }
  // The keys of checkpoints that older versions wrote.
  for (const char* name : {"optimizer", "momentum", "nesterov", "weight_decay", "precision", "data", "augment", "init",
                           "init_skip", "freeze", "loss", "output"})
    EXPECT_EQ(field_called(name).on_resume, OnResume::another_run) << name;
  for (const char* name : {"lr", "lr_schedule", "warmup", "clip_norm", "steps", "epochs"})
    EXPECT_EQ(field_called(name).on_resume, OnResume::allowed) << name;
}

TEST(RunSpec, ResumingComparesByTheTable) {
  RunSpec before, now;
  before.parts = 2;
  const auto compare = [&] { return compare_with_kept(kept_in_checkpoint(before), kept_in_checkpoint(now), "run"); };
  now.parts = 2;
  EXPECT_TRUE(compare().empty());
  now.lr = 0.5;
  now.trace = "trace.json";
  ASSERT_EQ(compare().size(), 1u) << "of what is for one start alone nothing is said";
  EXPECT_TRUE(says(compare()[0], {"`resume run`", "`lr 0.5` from here on", "`lr 0.01`"}));
  now.layouts = false;
  now.schedule = "ooo";
  ASSERT_EQ(compare().size(), 3u);
  EXPECT_TRUE(says(compare()[1], {"`layouts false`", "`layouts true`", "last bits"}));
  for (const char* name : {"beta1", "beta2", "eps", "data", "scale", "channels_last", "freeze", "loss"}) {
    RunSpec other = now;
    set(other, name, another_value(field_called(name)));
    std::swap(now, other);
    EXPECT_TRUE(says(user_error(compare), {"another run", "the one in run", name, "without `resume`"})) << name;
    std::swap(now, other);
  }
  now = before;
  now.optimizer = "adamw";
  EXPECT_TRUE(says(user_error(compare), {"`optimizer adamw`: ", "made with `optimizer sgd`"}));
  // A checkpoint of before there were such fields.
  json old = kept_in_checkpoint(before);
  old.erase("beta1");
  now = before;
  now.beta1 = 0.8;
  EXPECT_TRUE(compare_with_kept(old, kept_in_checkpoint(now), "run").empty());
}

TEST(RunSpec, AResumedRunHasWhatIsKeptButForWhatIsGiven) {
  RunSpec before;
  before.lr = 0.5;
  before.steps = 100;
  before.threads = 2;
  before.replicas = 4;
  before.reduce = "first-k";
  before.first_k = "2";
  before.micro_batches = 2;
  before.plan = "old.plan";
  before.freeze = {"stem."};
  const json kept = kept_in_checkpoint(before);
  const auto resumed = [&](const RunSpec& asked, std::initializer_list<std::string_view> names) {
    std::vector<const Field*> given;
    for (const std::string_view name : names) given.push_back(&field_called(name));
    return taken_up(kept, asked, given, "run");
  };
  RunSpec asked;
  asked.resume = "run";
  RunSpec now = resumed(asked, {"resume"});
  EXPECT_EQ(now.lr, 0.5);
  EXPECT_EQ(now.threads, 2u);
  EXPECT_EQ(now.freeze, before.freeze);
  EXPECT_EQ(now.resume, "run");
  EXPECT_EQ(now.plan, "") << "that was of one start";
  asked.lr = 0.01;
  EXPECT_EQ(resumed(asked, {"lr"}).lr, 0.01) << "given, though it is the default";
  // The length of a run is one setting, and so is its layout.
  asked.epochs = 3;
  now = resumed(asked, {"epochs"});
  EXPECT_EQ(now.steps, 0u);
  EXPECT_EQ(now.epochs, 3u);
  asked.stages = 2;
  now = resumed(asked, {"pp"});
  EXPECT_EQ(now.stages, 2u);
  EXPECT_EQ(now.replicas, 1u);
  EXPECT_EQ(now.micro_batches, 1u);
  EXPECT_EQ(now.reduce, "buckets");
  asked.reduce = "by-layer";
  now = resumed(asked, {"reduce"});
  EXPECT_EQ(now.replicas, 4u);
  EXPECT_EQ(now.first_k, "2");
  EXPECT_EQ(now.reduce, "by-layer");
  json damaged = kept;
  damaged["lr"] = "fast";
  EXPECT_TRUE(says(user_error([&] { taken_up(damaged, asked, {}, "run"); }), {"`resume run`", "damaged", "lr"}));
}

TEST(RunSpec, DataIsTheSameIfItsContentIs) {
  const json kept = {{"data", "npy:a.npy,b.npy"}, {"data_content", "64 samples of x"}};
  json now = {{"data", "npy:c.npy,d.npy"}};
  EXPECT_TRUE(compare_with_kept(kept, now, "run").empty()) << "its content is not known yet";
  now["data_content"] = "64 samples of x";
  const std::vector<std::string> lines = compare_with_kept(kept, now, "run");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(says(lines[0], {"`data npy:c.npy,d.npy`", "same content", "`data npy:a.npy,b.npy`"}));
  for (const char* name : {"npy:a.npy,b.npy", "npy:c.npy,d.npy"}) {
    now = {{"data", name}, {"data_content", "64 samples of y"}};
    EXPECT_TRUE(says(user_error([&] { compare_with_kept(kept, now, "run"); }),
                     {"`data npy:", "64 samples of x", "64 samples of y", "the same data"}));
  }
  // A checkpoint of before contents were kept.
  EXPECT_TRUE(says(user_error([&] { compare_with_kept({{"data", "old"}}, now, "run"); }), {"`data old`"}));
}

// Specs that are made in C++ are held to the same bounds as those of a command line.
TEST(RunSpec, FieldsOfAnySpecAreChecked) {
  EXPECT_NO_THROW(check_fields({}));
  RunSpec spec;
  spec.schedule = "random";
  EXPECT_TRUE(says(user_error([&] { check_fields(spec); }), {"`schedule random`", "in-order"}));
  spec = {};
  spec.beta1 = 2;
  EXPECT_TRUE(says(user_error([&] { check_fields(spec); }), {"`beta1 2`", "below 1"}));
  spec = {};
  spec.skip_passes = {"nosuch"};
  EXPECT_TRUE(says(user_error([&] { check_fields(spec); }), {"`skip_pass nosuch`", "fuse"}));
}

TEST(RunSpec, RanksCompareByTheTable) {
  for (const Field& field : fields()) {
    RunSpec other;
    set_value(other, field, another_value(field));
    const bool is_same = identity_of(other) == identity_of(RunSpec{});
    EXPECT_EQ(is_same, field.across_ranks == AcrossRanks::own) << field.name;
  }
  for (const char* name : {"gradient_groups", "skip_pass", "layouts"})
    EXPECT_EQ(field_called(name).across_ranks, AcrossRanks::equal) << name;
  // Where rank 0's value counts, others may have another one.
  RunSpec here, there;
  here.save = "here";
  there.save = "there";
  EXPECT_EQ(identity_of(here), identity_of(there));
}

}  // namespace
}  // namespace overtake
