// Every mistake a user can make: the right words, exit code 2, nothing written over.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "command.h"

namespace overtake::tests {
namespace {

// Each word must be in what the program says.
void expect_user_error(const std::string& arguments, const std::vector<std::string>& words) {
  const CommandResult r = overtake(arguments);
  EXPECT_EQ(r.exit_code, 2) << arguments << "\n" << r.out << r.err;
  for (const std::string& word : words)
    EXPECT_NE(r.err.find(word), std::string::npos) << "no '" << word << "' in: " << r.err;
  EXPECT_NE(r.err.find("overtake: "), std::string::npos) << r.err;
}

const std::string kRun = "train cnn --set width=4 --batch 8 --data synthetic:64 --schedule in-order --steps 4 ";

TEST(Error, UnknownModel) { expect_user_error("train resnet-51", {"resnet-51", "no such network", "resnet-50"}); }
// What was probably meant, of commands, options, values, names and keys.
TEST(Error, MistypedWords) {
  expect_user_error("trian cnn", {"trian: no such command; did you mean train?"});
  expect_user_error("x cnn", {"x: no such command; there are train, launch, bench"});
  expect_user_error("", {"which command?", "train, launch, bench", "`overtake --help`"});
  expect_user_error("--verison", {"--verison: no such option; did you mean --version?"});
  expect_user_error("help trian", {"help: trian: no such command", "did you mean train?"});
  expect_user_error("launch -n 2 -- trian cnn", {"launch: trian: no such command", "did you mean train?"});
  expect_user_error("train cnn --lrr 0.1", {"train: --lrr: no such option; did you mean --lr?"});
  expect_user_error("train cnn --shedule=ooo", {"train: --shedule: no such option; did you mean --schedule?"});
  expect_user_error("bench cnn --xyzzy", {"bench: --xyzzy: no such option; `overtake bench --help` lists them"});
  expect_user_error("train cnn lenet", {"train: lenet: one argument too many"});
  expect_user_error("train cnn --lr", {"train: --lr", "`overtake train --help`"});
  expect_user_error("train cnn --schedule oo", {"--schedule oo", "in-order, ooo, auto; did you mean ooo?"});
  expect_user_error("train cnn --skip-pass fuse,recognize", {"; did you mean recognise?"});
  expect_user_error("train cnn --lr-schedule cosin:0.1", {"--lr-schedule cosin:0.1", "did you mean cosine?"});
  expect_user_error("train cnn --data fasion-mnist", {"--data fasion-mnist", "did you mean fashion-mnist?"});
  expect_user_error("train resnet18", {"did you mean resnet-18?"});
  expect_user_error("train cnn --set widht=4", {"widht", "did you mean width?"});
  expect_user_error("simulate cnn --machine dgx-h10:2", {"did you mean dgx-h100?"});
  expect_user_error("simulate cnn --machine ideal:2 --pp 2 --pipeline zbv", {"did you mean zb-v?"});
  expect_user_error("simulate cnn --machine ideal:2 --pp 2 --compare gpipe,1f2b", {"'1f2b'", "did you mean 1f1b?"});
  const ScratchFolder folder;
  const std::string file = folder / "x.toml";
  write_text(file, "model = \"cnn\"\nlr_shedule = \"cosine\"\n");
  expect_user_error("train --spec " + file, {"x.toml:2: lr_shedule: no such field; did you mean lr_schedule?"});
  write_text(file, "nam = \"x\"\n");
  expect_user_error("simulate cnn --machine " + file, {"x.toml:1", "did you mean name?"});
}
TEST(Error, CollectivesAlone) {
  const std::string command = "simulate --machine dgx-h100 --collective ";
  expect_user_error(command + "all-redcue --bytes 1M",
                    {"--collective all-redcue", "no such operation", "all-reduce, reduce-scatter"});
  expect_user_error(command + "all-reduce", {"--collective all-reduce", "--bytes", "256M"});
  for (const char* bytes : {"0", "1M,0", "-1", "2T"})
    expect_user_error(command + "all-reduce --bytes=" + bytes, {fmt::format("--bytes {}", bytes)});
  expect_user_error(command + "all-reduce --bytes 1M,x", {"--bytes 1M,x"});
  for (const char* bytes : {"8:8G:1", "1M:8:2", "8:16:x", "8:16:2:2"})
    expect_user_error(command + "all-reduce --bytes " + bytes, {fmt::format("--bytes {}", bytes), "8:8G:2"});
  expect_user_error(command + "all-reduce --bytes 1M --devices 3", {"one device", "--devices"});
  expect_user_error("simulate --machine h200 --collective all-reduce --bytes 1M", {"one device", "add nodes"});
  expect_user_error(command + "all-reduce --bytes 1M --devices 0-8", {"--devices", "no device 8", "0 to 7"});
  expect_user_error(command + "all-reduce --bytes 1M --devices 0,1,0", {"--devices", "device 0 is given twice"});
  expect_user_error("simulate --collective all-reduce --bytes 1M", {"--collective", "--machine"});
  expect_user_error("simulate cnn --machine dgx-h100 --collective all-reduce --bytes 1M", {"without a model", "cnn"});
  expect_user_error(command + "all-reduce --bytes 1M --dp 4", {"--collective", "--dp", "training steps"});
  expect_user_error(command + "all-reduce --bytes 1M --steps 4", {"--collective", "--steps"});
  expect_user_error(command + "all-gather --bytes 1M --algorithm tree", {"tree", "all-gather", "use ring"});
  expect_user_error(command + "all-reduce --bytes 1M --algorithm nvls-tree", {"nvls-tree", "several nodes"});
  expect_user_error("simulate cnn --bytes 1M", {"--bytes", "--collective"});
}
TEST(Error, WeightsAsPyTorchSavesThem) {
  const ScratchFolder folder;
  const std::string file = folder / "cnn.pt";
  for (const std::string& begin :
       {std::string("PK\x03\x04\x00\x00\x08\x08", 8), std::string("\x80\x02\x8a\x0al\xfc\x9c\x46", 8)}) {
    write_text(file, begin + std::string(100, 'x'));
    expect_user_error(kRun + "--init " + file, {"cnn.pt", "of PyTorch", "import torch, safetensors.torch",
                                                "torch.load(\"cnn.pt\"", "save_file(", "\"cnn.safetensors\")"});
  }
}
// Bounds without an upper end were once shown with all 309 digits of the largest number.
TEST(Error, BoundsAreReadable) {
  for (const std::string command : {"train cnn", "launch"}) {
    const std::string help = overtake(command.substr(0, command.find(' ')) + " --help").out;
    EXPECT_EQ(help.find("e+308"), std::string::npos) << help;
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t at = line.find("--"), end = line.find_first_of(" ,", at);
      const std::size_t type = std::min(line.find(" INT", at), line.find(" FLOAT", at));
      if (at == std::string::npos || type == std::string::npos) continue;
      const std::string err = overtake(command + " " + line.substr(at, end - at) + "=-1").err;
      std::size_t digits = 0;
      for (const char c : err) {
        digits = std::isdigit(static_cast<unsigned char>(c)) != 0 ? digits + 1 : 0;
        ASSERT_LT(digits, 30u) << err;
      }
    }
  }
}
TEST(Error, UnknownSetting) { expect_user_error("train lenet --set depth=3", {"lenet", "depth", "classes"}); }
TEST(Error, SettingIsNoNumber) { expect_user_error("train lenet --set classes=ten", {"--set", "classes=ten"}); }
TEST(Error, SettingOutOfRange) {
  expect_user_error("train lenet --set image=3 --steps 1", {"lenet", "image", "3", "12"});
  expect_user_error("train gpt2 --set heads=5 --steps 1", {"gpt2", "heads", "5", "width"});
  expect_user_error("train resnet-18 --set norm=layer --steps 1", {"--set", "norm=layer"});
}
TEST(Error, HugeModel) { expect_user_error("models ffnn --set image=16777216,width=16777216", {"ffnn", "too large"}); }
TEST(Error, EndlessModel) {
  expect_user_error("train transformer --set layers=1000000 --data synthetic:64 --steps 1",
                    {"transformer", "more than", "operations", "settings"});
}
TEST(Error, NumbersThatAreNone) {
  for (const char* flag : {"--lr nan", "--lr inf", "--clip-norm nan", "--plan-seconds nan", "--weight-decay inf",
                           "--time-out nan", "--eps=-nan"})
    expect_user_error(kRun + flag, {std::string(flag).substr(0, std::string(flag).find_first_of(" ="))});
  for (const char* seconds : {"nan", "inf", "-1", "1e300"})
    expect_user_error(std::string("launch -n 1 --leave-seconds ") + seconds + " -- models", {"--leave-seconds"});
  const std::string simulate = "simulate lenet --machine p3.8xlarge --dp 2 ";
  for (const char* speed : {"0:1e-300", "0:nan", "0:inf", "0:0", "0:-1", "0:1e300", "0:0.001 --slow 0:0.001"})
    expect_user_error(simulate + "--slow " + speed, {"--slow 0:", "0.0001"});
  expect_user_error(simulate + "--fail 0:nan", {"--fail 0:nan"});
  expect_user_error("simulate --synthetic stages=2,f=1e300", {"--synthetic", "1e+300"});
}
// Nothing that a file or a path holds reaches the terminal as it is.
TEST(Error, EscapesArePrintable) {
  const ScratchFolder folder;
  const std::string trace = folder / "t.json";
  write_text(trace, R"([{"ph": "X", "pid": "\u001b[31m", "tid": 1, "name": "\u009b31m", "ts": 1, "dur": 2}])");
  const CommandResult page = overtake("report " + trace + " -o " + (folder / "t.html"));
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_EQ(page.out.find('\x1b'), std::string::npos) << page.out;
  EXPECT_NE(page.out.find("\\x1b[31m"), std::string::npos) << page.out;
  write_text(trace, R"([{"ph": "X", "pid": 1, "tid": 1, "name": "\u001b[31m", "ts": 1, "dur": -2}])");
  const CommandResult refused = overtake("report " + trace + " --overwrite -o " + (folder / "t.html"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.err.find('\x1b'), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("\\x1b[31m"), std::string::npos) << refused.err;
  const CommandResult path = overtake("train \"$(printf '\\033')[31m.onnx\" --data synthetic:4");
  EXPECT_EQ(path.err.find('\x1b'), std::string::npos) << path.err;
}
TEST(Error, FilesNestedTooDeeply) {
  const ScratchFolder folder;
  const std::string file = folder / "deep", deep(300'000, '[');
  write_text(file, deep + std::string(300'000, ']'));
  expect_user_error("report " + file + " -o " + (folder / "r.html"), {"deep"});
  expect_user_error("train --plan " + file + " --data synthetic:4", {"deep"});
  write_text(file, "model = " + deep);
  expect_user_error("train --spec " + file, {"deep:1", "nested too deeply"});
  expect_user_error("simulate lenet --machine " + file + " --dp 2", {"deep"});
}
TEST(Error, OutOfMemory) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer itself needs more address space than this leaves";
#endif
  const ScratchFolder folder;
  const std::string trace = folder / "large.json";
  write_text(trace, "");
  std::filesystem::resize_file(trace, std::uintmax_t{8} << 30);  // of which nothing lies on the disk
  const CommandResult r = overtake("report " + trace + " -o " + (folder / "r.html"), "ulimit -v 4000000; ");
  EXPECT_EQ(r.exit_code, 2) << r.err;
  EXPECT_NE(r.err.find("not enough memory"), std::string::npos) << r.err;
}
TEST(Error, NoOnnxFile) {
  expect_user_error("train none.onnx --data synthetic", {"none.onnx", "cannot read"});
  const ScratchFolder folder;
  const std::string file = folder / "not.onnx";
  write_text(file, "this is a text, and no model at all");
  expect_user_error("train " + file + " --data synthetic", {"not.onnx", "no ONNX file"});
  write_text(file, "");
  expect_user_error("models " + file, {"not.onnx"});
}
TEST(Error, OnnxFlagsWithAZooNetwork) {
  expect_user_error(kRun + "--loss mse", {"--loss", "ONNX"});
  expect_user_error(kRun + "--output y", {"--output", "ONNX"});
}
TEST(Error, WeightsThatDoNotFit) {
  const ScratchFolder folder;
  const std::string runs = folder / "run", file = folder / "w.safetensors";
  ASSERT_EQ(overtake(kRun + "--save " + runs).exit_code, 0);
  ASSERT_EQ(overtake("export " + runs + " -o " + file).exit_code, 0);
  ASSERT_EQ(overtake(kRun + "--init " + file).exit_code, 0);
  expect_user_error("train cnn --set width=4,classes=3 --data synthetic:64 --steps 1 --init " + file,
                    {"--init", "fc.weight", "[10,", "[3,", "fc.bias", "--init-skip"});
  ASSERT_EQ(overtake("train cnn --set width=4,classes=3 --data synthetic:64 --batch 8 --steps 1 --schedule in-order "
                     "--init-skip fc. --init " +
                     file)
                .exit_code,
            0);
  expect_user_error("train lenet --data synthetic:64 --steps 1 --init " + file,
                    {"missing [conv1.weight", "too much [fc.bias", " more]"});
  expect_user_error(kRun + "--init " + (folder / "none.safetensors"), {"none.safetensors", "cannot read"});
  expect_user_error(kRun + "--init-skip fc.", {"--init-skip", "--init"});
  write_text(file, "damaged");
  expect_user_error(kRun + "--init " + file, {"w.safetensors", "no safetensors file"});
}
TEST(Error, NamesThatNothingBeginsWith) {
  expect_user_error(kRun + "--freeze conv9.", {"--freeze conv9.", "no weight"});
  expect_user_error(kRun + "--freeze stem,stage,fc", {"no weight that is trained"});
}
TEST(Error, NumbersOutOfRange) {
  for (const char* flag : {"--batch 0", "--steps -4", "--steps 0", "--epochs 0", "--threads 100000", "--parts 0",
                           "--weight-decay -1", "--clip-norm -1", "--warmup -1", "--save-every -1"})
    expect_user_error(std::string("train cnn --data synthetic:64 --schedule in-order ") + flag,
                      {std::string(flag).substr(0, std::string(flag).find(' '))});
}
TEST(Error, NothingToExport) {
  const ScratchFolder folder;
  expect_user_error("export " + (folder / "none") + " -o " + (folder / "w.safetensors"),
                    {"none", "no such checkpoint"});
}
TEST(Error, WrongShapeOfData) {
  expect_user_error("train resnet-18 --data fashion-mnist --steps 1 --set image=32,batch=2", {"fashion-mnist"});
}
TEST(Error, UnknownCommand) { expect_user_error("fly", {"--help"}); }
TEST(Error, UnknownFlag) { expect_user_error(kRun + "--warp 9", {"--warp"}); }
TEST(Error, UnknownSchedule) {
  expect_user_error("train lenet --schedule random", {"--schedule", "random", "in-order"});
}
TEST(Error, UnknownOptimizer) { expect_user_error(kRun + "--optimizer lion", {"--optimizer", "lion", "adamw"}); }
TEST(Error, UnknownPrecision) { expect_user_error(kRun + "--precision f8", {"--precision", "f8"}); }
TEST(Error, SideSmsOfACpu) { expect_user_error(kRun + "--side-sms 8", {"--side-sms", "--device cuda"}); }
TEST(Error, VirtualGpus) {
  expect_user_error(kRun + "--virtual-gpus 4", {"--virtual-gpus", "--device cuda"});
  const std::string gpu = kRun + "--device cuda ";
  expect_user_error(gpu + "--virtual-link 25GB/s", {"--virtual-link", "--virtual-gpus"});
  expect_user_error(gpu + "--virtual-gpus 2 --side-sms 8", {"--virtual-gpus", "--side-sms"});
  for (const char* link : {"fast", "25GB/s,soon", "0GB/s", "25GB/s,", "5us", "25GB/s,5us,1"})
    expect_user_error(gpu + "--virtual-gpus 2 --virtual-link " + link, {"--virtual-link", link, "25GB/s,5us"});
}
TEST(Error, NegativePlanSeconds) { expect_user_error(kRun + "--plan-seconds -1", {"--plan-seconds"}); }
TEST(Error, UnknownLrSchedule) { expect_user_error(kRun + "--lr-schedule zigzag", {"--lr-schedule", "zigzag"}); }
TEST(Error, AbsentDevice) { expect_user_error(kRun + "--device cuda", {"--device cuda", "overtake devices"}); }
TEST(Error, BatchOfNothing) { expect_user_error("train lenet --batch -3", {"--batch", "-3"}); }

TEST(Error, CapBelowNeed) {
  expect_user_error(kRun + "--memory-cap 100K", {"--memory-cap", "100 KiB", "bytes", "--batch"});
  expect_user_error(kRun + "--memory-cap lots", {"--memory-cap", "lots"});
}

TEST(Error, NoDataForAModelOfOnesOwn) {
  const ScratchFolder folder;
  write_text(folder / "net.onnx", "this is looked at later");
  expect_user_error("train " + (folder / "net.onnx"), {"net.onnx", "--data", "npy:", "bench"});
}
TEST(Error, UnknownData) { expect_user_error("train lenet --data mnist", {"mnist", "fashion-mnist"}); }
TEST(Error, MissingDataSet) {
  expect_user_error("train lenet --data fashion-mnist:/nonexistent", {"/nonexistent", "dataset-fashion-mnist"});
}
TEST(Error, DamagedDataSet) {
  const ScratchFolder folder;
  for (const char* name : {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
                           "t10k-labels-idx1-ubyte.gz"})
    write_text(folder / name, "this is no gzip file");
  expect_user_error("train lenet --data fashion-mnist:" + (folder / ""), {"train-"});
}
TEST(Error, MissingText) { expect_user_error("train lstm --data text:/nonexistent.txt", {"/nonexistent.txt"}); }
TEST(Error, TextTooShort) {
  const ScratchFolder folder;
  write_text(folder / "short.txt", "hi");
  expect_user_error("train lstm --data text:" + (folder / "short.txt"), {"short.txt"});
}
TEST(Error, TextThatTheModelSeesWhole) {
  const ScratchFolder folder;
  write_text(folder / "a.txt", std::string(4000, 'a'));
  expect_user_error(
      "train bert-12 --set layers=1,width=32,heads=2,sequence=16,vocabulary=300 --data text:" + (folder / "a.txt"),
      {"sees the whole text", "masked-text:"});
}
TEST(Error, ScheduleOfSeveralDevices) {
  expect_user_error("train cnn --pp 2 --schedule ooo", {"--schedule ooo", "2 devices", "launch -n 2"});
}
TEST(Error, NpyIsNoNpy) {
  const ScratchFolder folder;
  write_text(folder / "x.npy", "not numpy");
  expect_user_error("train lenet --data npy:" + (folder / "x.npy") + "," + (folder / "x.npy"), {"x.npy"});
}

TEST(Error, OutputsThatAreThereAlready) {
  const ScratchFolder folder;
  ASSERT_EQ(overtake(kRun + "--save " + (folder / "run")).exit_code, 0);
  const std::string to = folder / "it";
  const struct {
    std::string command, ending;
  } table[] = {{"export " + (folder / "run") + " -o ", ".safetensors"},
               {"train cnn --save-spec ", ".toml"},
               {"train cnn --save-plan ", ".plan"},
               {"train cnn --trace ", ".json"},
               {"bench cnn --trace ", ".json"},
               {"simulate bert-12 --trace ", ".json"},
               {"simulate bert-12 --measure cpu --save-profile ", ".json"},
               {"plan cnn -o ", ".plan"},
               {"report none.json -o ", ".html"}};
  for (const auto& row : table) {
    write_text(to + row.ending, "precious");
    expect_user_error(row.command + to + row.ending, {"it" + row.ending, "there already", "--overwrite"});
    expect_user_error(row.command + to + ".onnx", {"it.onnx", "ends in " + row.ending});
    EXPECT_EQ(read_text(to + row.ending), "precious");
    std::filesystem::remove(to + row.ending);
  }
  EXPECT_FALSE(std::filesystem::exists(to + ".onnx"));
  write_text(to + ".2.et", "precious");
  expect_user_error("simulate bert-12 --dp 2 --chakra-out " + to, {"it.2.et", "--overwrite"});
  write_text(to + ".safetensors", "of no use");
  ASSERT_EQ(overtake("export " + (folder / "run") + " --overwrite -o " + to + ".safetensors").exit_code, 0);
  EXPECT_NE(read_text(to + ".safetensors"), "of no use");
  EXPECT_EQ(overtake("export " + (folder / "run") + " -o /dev/null").exit_code, 0);
}

TEST(Error, CalibrationsThatCannotBe) {
  const ScratchFolder folder;
  const std::string file = folder / "few.toml", run = "simulate lenet --machine h200 --calibrate " + file;
  const std::string product = "[[kernel]]\nkind = \"product\"\nprecision = \"bf16\"\nm = 64\nn = 64\nk = 64\n";
  expect_user_error(run, {"few.toml"});
  const struct {
    std::string text;
    std::vector<std::string> words;
  } table[] = {
      {"x = [", {"few.toml:1"}},
      {"", {"no kernel is in it", "[[kernel]]"}},
      {"kernels = 3\n", {"few.toml:1: kernels: unknown"}},
      {"[[kernel]]\nkind = \"prodct\"\n", {"few.toml:1: kind", "\"prodct\"", "did you mean product?"}},
      {"[[kernel]]\nkind = \"launch\"\n", {"few.toml:1: time: missing"}},
      {"[[kernel]]\nkind = \"launch\"\ntime = \"4 parsecs\"\n", {"time: ", "ns, us, ms, s"}},
      {"[[kernel]]\nkind = \"launch\"\ntime = \"4 us\"\nm = 3\n", {"unknown key: \"m\"", "kind, time"}},
      {product, {"time: missing"}},
      {product + "time = \"1 us\"\n", {"a product of 1000 ns takes no longer than its launch", "h200"}},
      {"[[kernel]]\nkind = \"product\"\ntime = \"1 ms\"\nprecision = \"f64\"\n", {"\"f64\"", "f32, tf32, bf16"}},
      {"[[kernel]]\nkind = \"convolution\"\ntime = \"1 ms\"\nprecision = \"f32\"\nimage = [1, 2, 3]\n", {"four sizes"}},
      {"[[kernel]]\nkind = \"convolution\"\ntime = \"1 ms\"\nprecision = \"f32\"\nimage = [1, 8, 9, 9]\nout = "
       "8\nkernel = "
       "3\ngroups = 3\n",
       {"groups: 8 and 8 channels do not divide into 3"}},
      {"[[kernel]]\nkind = \"attention\"\ntime = \"1 ms\"\nprecision = \"bf16\"\nbatch = 1\nsequence = 64\nheads = "
       "3\nwidth "
       "= 64\n",
       {"width: 64 does not divide into 3 heads"}},
  };
  for (const auto& row : table) {
    write_text(file, row.text);
    expect_user_error(run, row.words);
  }
  write_text(file, "[[kernel]]\nkind = \"launch\"\ntime = \"4 us\"\n");
  expect_user_error("simulate --synthetic stages=2,micro=2 --calibrate " + file, {"--calibrate", "--synthetic"});
  const std::string machine = folder / "mine.toml";
  write_text(machine,
             "[device.gpu]\nf32 = \"1 TFLOP/s\"\nmemory = [{ capacity = \"1 GB\", bandwidth = \"1 TB/s\" }]\n"
             "kernels = \"hoper\"\n[node.box]\ndevices = { gpu = 1 }\n");
  expect_user_error("simulate lenet --machine " + machine, {"mine.toml:4: kernels", "\"hoper\"", "hopper"});
}

TEST(Error, CheckpointsThatCannotBe) {
  expect_user_error(kRun + "--save-every 20", {"--save-every 20", "--save"});
  expect_user_error(kRun + "--keep 2", {"--keep 2", "--save"});
  const ScratchFolder folder;
  expect_user_error(kRun + "--save " + (folder / std::string(215, 'n')), {"--save", "too long"});
  expect_user_error(kRun + "--save " + (folder / "\xff"), {"--save", "not UTF-8"});
  expect_user_error(kRun + "--keep 0 --save " + (folder / "run"), {"--keep 0"});
}

TEST(Error, UnwritableOutput) {
  expect_user_error("models > /dev/full", {"could not be written"});
  expect_user_error("models --json > /dev/full", {"could not be written"});
  expect_user_error(kRun + "--save /proc/nope/run", {"/proc/nope"});
  expect_user_error(kRun + "--trace /proc/nope/trace.json", {"/proc/nope"});
  expect_user_error("bench lenet --steps 1 --trace /proc/nope/trace.json", {"/proc/nope"});
}

class Checkpoint : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(overtake(kRun + "--save " + path()).exit_code, 0); }
  std::string path() const { return folder_ / "run"; }
  std::string tensors_file() const {
    return folder_ / nlohmann::json::parse(read_text(path() + ".json")).at("tensors").at("file").get<std::string>();
  }
  ScratchFolder folder_;
};

TEST_F(Checkpoint, Missing) { expect_user_error(kRun + "--resume /nonexistent", {"/nonexistent"}); }
TEST_F(Checkpoint, Truncated) {
  const std::string whole = read_text(tensors_file());
  write_text(tensors_file(), whole.substr(0, whole.size() / 2));
  expect_user_error(kRun + "--resume " + path(), {"safetensors"});
}
TEST_F(Checkpoint, DamagedJson) {
  write_text(path() + ".json", "{");
  expect_user_error(kRun + "--resume " + path(), {"run.json"});
}
TEST_F(Checkpoint, Foreign) {
  write_text(path() + ".json", R"({"hello": "world"})");
  expect_user_error(kRun + "--resume " + path(), {"run.json"});
}
TEST_F(Checkpoint, OfAnotherModel) {
  expect_user_error("train lenet --batch 8 --data synthetic:64 --steps 8 --resume " + path(),
                    {"--resume", "cnn", "lenet"});
}
TEST_F(Checkpoint, OfOtherSettings) {
  expect_user_error(kRun + "--weight-decay 0.5 --resume " + path(), {"--resume", "--weight-decay 0.5"});
  expect_user_error(kRun + "--seed 9 --resume " + path(), {"--resume", "seed", "9"});
}
TEST_F(Checkpoint, IsNotReplacedByAnotherRun) {
  const std::string json = read_text(path() + ".json"), tensors = read_text(tensors_file());
  expect_user_error(kRun + "--save " + path(), {"--save", "there is a checkpoint", "--resume", "--overwrite"});
  EXPECT_EQ(read_text(path() + ".json"), json);
  EXPECT_EQ(read_text(tensors_file()), tensors);
}
TEST_F(Checkpoint, Changed) {
  nlohmann::json described = nlohmann::json::parse(read_text(path() + ".json"));
  described["settings"]["parts"] = 3;
  write_text(path() + ".json", described.dump());
  expect_user_error(kRun + "--resume " + path(), {"run.json", "damaged", "checksum"});
}
TEST_F(Checkpoint, StaysWhereALossIsNotFinite) {
  const std::string json = read_text(path() + ".json"), tensors = read_text(tensors_file());
  const CommandResult r = overtake(
      "train cnn --set width=4 --batch 8 --data synthetic:64 --schedule in-order --steps 40 "
      "--lr 1e18 --momentum 0 --save-every 100 --overwrite --save " +
      path());
  EXPECT_EQ(r.exit_code, 2) << r.err;
  EXPECT_NE(r.err.find("not finite"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("first made by"), std::string::npos) << r.err;
  EXPECT_EQ(read_text(path() + ".json"), json);
  EXPECT_EQ(read_text(tensors_file()), tensors);
}

}  // namespace
}  // namespace overtake::tests
