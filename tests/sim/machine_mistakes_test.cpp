// What is said of mistakes in machine files: the file, the line, what is wrong, and what would be right.

#include <gtest/gtest.h>

#include "base/philox.h"
#include "overtake/cluster.h"
#include "tiny_machine.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

using tests::kTinyMachine;

std::string error_of(const std::string& text) {
  return user_error([&] { parse_cluster(text, "my.toml"); });
}

// kTinyMachine with one thing replaced.
std::string error_with(const std::string& from, const std::string& to) {
  std::string text = kTinyMachine;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return error_of(text);
}

TEST(MachineMistakes, Keys) {
  EXPECT_TRUE(says(error_with("sms = 80", "cores = 80"),
                   {"my.toml:7: unknown key in [device.gpu]: \"cores\"; known are target, profile, f32, ", "sms"}));
  EXPECT_TRUE(says(error_with("count = 2", "number = 2"), {"my.toml:9: unknown key in [node.box]: \"number\""}));
  EXPECT_TRUE(says(error_with("kind = \"NVLink\"", "type = 1"), {"my.toml:21: unknown key in [[link]]: \"type\""}));
  EXPECT_TRUE(says(error_with("capacity", "size"), {"my.toml:6: unknown key in a memory of [device.gpu]: \"size\""}));
  EXPECT_TRUE(says(error_with("[switch.tor]", "[switch.tor]\nspeed = 1"),
                   {"my.toml:13: unknown key in [switch.tor]: \"speed\"; known are count, reduction"}));
  EXPECT_TRUE(says(error_with("name = \"tiny\"", "color = 1"), {"my.toml:2: unknown key: \"color\"", "[device.NAME]"}));
  EXPECT_TRUE(says(error_with("[node.box]", "[nodes.box]"), {"my.toml:8: unknown key: \"nodes\"", "[node.NAME]"}));
  EXPECT_TRUE(says(error_with("table = 8192\n", ""), {"my.toml:12: table: missing in [switch.tor]; add"}));
  EXPECT_TRUE(says(error_with("f32 = ", "tf32 = "), {"my.toml:3: f32: missing in [device.gpu]"}));
  EXPECT_TRUE(says(error_with("memory = [{ name = \"HBM\", capacity = \"16 GiB\", bandwidth = \"900 GB/s\" }]\n", ""),
                   {"my.toml:3: memory: missing in [device.gpu]"}));
  EXPECT_TRUE(
      says(error_with("capacity = \"16 GiB\", ", ""), {"my.toml:6: capacity: missing in a memory of [device.gpu]"}));
  EXPECT_TRUE(says(error_with("devices = { gpu = 2 }\n", ""), {"my.toml:8: devices: missing in [node.box]"}));
  EXPECT_TRUE(
      says(error_with("between = [\"box/inner\", \"tor\"]\n", ""), {"my.toml:24: between: missing in [[link]]"}));
}

TEST(MachineMistakes, Quantities) {
  EXPECT_TRUE(says(error_with("25 GB/s", "25 GBps"), {"my.toml:22: bandwidth: ", "\"25 GBps\"", "GB/s"}));
  EXPECT_TRUE(says(error_with("25 GB/s", "25 us"), {"my.toml:22: bandwidth: ", "\"25 us\"", "Gb/s"}));
  EXPECT_TRUE(says(error_with("25 GB/s", "0 GB/s"), {"my.toml:22: bandwidth: zero"}));
  EXPECT_TRUE(says(error_with("25 GB/s", "-5 GB/s"), {"my.toml:22: bandwidth: ", "\"-5 GB/s\""}));
  EXPECT_TRUE(says(error_with("\"25 GB/s\"", "-5"), {"my.toml:22: bandwidth: ", "-5; write a number and"}));
  EXPECT_TRUE(says(error_with("700 ns", "700"), {"my.toml:23: latency: ", "ns, us, ms, s"}));
  EXPECT_TRUE(says(error_with("\"700 ns\"", "0.7"), {"my.toml:23: latency: not a number with a known unit: 0.7"}));
  EXPECT_TRUE(says(error_with("\"700 ns\"", "true"), {"my.toml:23: latency: ", "true"}));
  EXPECT_TRUE(says(error_with("16 GiB", "16 giga"), {"my.toml:6: capacity: ", "\"16 giga\"", "GiB"}));
  EXPECT_TRUE(says(error_with("table = 8192", "table = \"many\""), {"my.toml:14: table: not a count: \"many\""}));
}

TEST(MachineMistakes, OtherValues) {
  EXPECT_TRUE(says(error_with("sms = 80", "sms = \"many\""), {"my.toml:7: sms: not a count: \"many\""}));
  EXPECT_TRUE(says(error_with("sms = 80", "sms = 8.5"), {"my.toml:7: sms: not a count: 8.5"}));
  EXPECT_TRUE(says(error_with("count = 2", "count = 0"), {"my.toml:9: count: not a count: 0", "from 1 to"}));
  EXPECT_TRUE(
      says(error_with("\"NVLink\"", "\"Thunderbolt\""),
           {"my.toml:21: kind: unknown: \"Thunderbolt\"", "\"NVLink\", \"PCIe\", \"Ethernet\", \"InfiniBand\""}));
  EXPECT_TRUE(says(error_with("\"push\"", "true"), {"my.toml:13: reduction: unknown: true", "\"push\", \"pull\""}));
  EXPECT_TRUE(says(error_with("efficiency = 0.9", "efficiency = 1.9"),
                   {"my.toml:18: efficiency: out of range: 1.9", "from 0.001 to 1"}));
  EXPECT_TRUE(says(error_with("efficiency = 0.9", "efficiency = nan"), {"my.toml:18: efficiency: out of range: nan"}));
  EXPECT_TRUE(
      says(error_with("efficiency = 0.9", "efficiency = [1]"), {"my.toml:18: efficiency: out of range: a list"}));
  EXPECT_TRUE(says(error_with("sms = 80", "profile = \"\""), {"my.toml:7: profile: no text"}));
  EXPECT_TRUE(says(error_with("\"tiny\"", "2026-11-18"), {"my.toml:2: name: no text: a date or a time"}));
  EXPECT_TRUE(says(error_with("{ gpu = 2 }", "\"gpu x2\""), {"my.toml:10: devices: ", "\"gpu x2\"", "{ gpu = 8 }"}));
  EXPECT_TRUE(says(error_with("{ gpu = 2 }", "{}"), {"my.toml:10: devices: "}));
  EXPECT_TRUE(says(error_with("{ gpu = 2 }", "{ gpu = \"two\" }"), {"my.toml:10: devices.gpu: not a count: \"two\""}));
  EXPECT_TRUE(says(error_with("{ gpu = 2 }", "{ \"a b\" = 2 }"), {"my.toml:10: devices: not a name: \"a b\""}));
  for (const char* memory : {"\"16 GiB\"", "[]", "[\"16 GiB\"]", "{ capacity = 1, bandwidth = 1 }"})
    EXPECT_TRUE(says(error_with("[{ name = \"HBM\", capacity = \"16 GiB\", bandwidth = \"900 GB/s\" }]", memory),
                     {"my.toml:6: memory: not a list of memories: ", "outermost first"}))
        << memory;
  for (const char* ends : {"\"tor\"", "[]", "[\"tor\"]", "[[\"tor\"]]", "[\"a\", \"b\", \"c\"]", "[1, 2]",
                           "[[\"tor\", \"tor\"], \"tor\"]"})
    EXPECT_TRUE(says(error_with("[\"box/inner\", \"tor\"]", ends), {"my.toml:25: between: not two ends: "})) << ends;
}

TEST(MachineMistakes, Sections) {
  EXPECT_TRUE(says(error_of(""), {"my.toml:1: node: no section of this kind; add [node.NAME]"}));
  EXPECT_TRUE(says(error_with("[device.gpu]", "[device]"), {"my.toml:4: device.f32: not a section", "[device.NAME]"}));
  EXPECT_TRUE(says(error_of("node = 4"), {"my.toml:1: node: not a section: 4; begin one with [node.NAME]"}));
  EXPECT_TRUE(says(error_with("[switch.tor]", "[switch.\"a b\"]"), {"my.toml:12: switch: not a name: \"a b\""}));
  EXPECT_TRUE(says(error_with("[node.box.switch.inner]", "[node.bax.switch.inner]"),
                   {"my.toml:11: devices: missing in [node.bax]"}));
  EXPECT_TRUE(
      says(error_of("[link]\nkind = \"PCIe\"\n"), {"my.toml:1: link: not a list of links: a table", "[[link]]"}));
  EXPECT_TRUE(says(error_of("link = [1]"), {"my.toml:1: link: not a section: 1"}));
  EXPECT_TRUE(says(error_with("[node.box.switch.inner]", "[node.box.switch.gpu]"),
                   {"my.toml:11: switch: \"box/gpu\" is a device already"}));
  EXPECT_TRUE(
      says(error_with("{ gpu = 2 }", "{ tpu = 2 }"), {"my.toml:8: devices: unknown device: \"tpu\"", "[device.tpu]"}));
  EXPECT_TRUE(says(error_with("{ gpu = 2 }", "{ gpu = 1048576 }"), {"my.toml:8: node: too large"}));
}

TEST(MachineMistakes, Links) {
  EXPECT_TRUE(says(error_with("[\"box/inner\", \"tor\"]", "[\"box/inner\", \"top\"]"),
                   {"my.toml:25: link: unknown end: \"top\""}));
  EXPECT_TRUE(
      says(error_with("box/gpu", "box/gpu.2"), {"my.toml:20: link: index out of range: \"box/gpu.2\"", "there are 2"}));
  EXPECT_TRUE(says(error_with("box/gpu", "box/gpu.x"), {"my.toml:20: between: not an index: \"box/gpu.x\""}));
  EXPECT_TRUE(
      says(error_with("box/gpu", "box/gpu.0"), {"my.toml:8: link: missing: ", "box.0/gpu.0 cannot reach box.0/gpu.1"}));
  EXPECT_TRUE(
      says(error_with("\"box/inner\", \"tor\"", "\"tor.0\", \"tor.0\""), {"my.toml:25: link: both ends are the same"}));
  EXPECT_TRUE(says(error_with("[node.box.switch.inner]", "[node.bax]\ndevices = { gpu = 1 }\n[node.bax.switch.inner]"),
                   {"my.toml:22: link: unknown end: \"box/inner\""}));
  EXPECT_TRUE(says(error_with("[node.box.switch.inner]", "[node.box.switch.inner]\n[node.bax]\ndevices = { gpu = 1 }") +
                       error_with("[\"box/inner\", \"tor\"]", "[\"box/inner\", \"box/gpu\"]"),
                   {"cannot reach"}));
  std::string text = kTinyMachine;
  text.resize(text.rfind("[[link]]"));
  EXPECT_TRUE(says(error_of(text), {"my.toml:8: link: missing: ", "box.0/gpu.0 cannot reach box.1/gpu.0"}));
  text = kTinyMachine +
         "[node.bax]\ndevices = { gpu = 1 }\n[[link]]\nbetween = [\"box/gpu\", \"bax/gpu\"]\n"
         "kind = \"PCIe\"\nbandwidth = 1\nlatency = 0\n";
  EXPECT_TRUE(says(error_of(text), {"my.toml:33: link: ends in two kinds of nodes: box and bax"}));
}

// No switch is near all devices, so that they are compared with one another; of so many that are alike, one for all.
TEST(MachineMistakes, ManyDevicesAreCheckedByTheirKinds) {
  const auto machine = [](const std::string& last) {
    std::string text =
        "[device.gpu]\nf32 = \"1 TFLOP/s\"\nmemory = [{ capacity = \"1 GB\", bandwidth = \"1 GB/s\" }]\nsms = 1\n";
    for (const char* node : {"a", "b", "c"})
      text += fmt::format("[node.{}]\ncount = 20000\ndevices = {{ gpu = 1 }}\n", node);
    for (const char* name : {"ab", "bc", "ca"}) text += fmt::format("[switch.{}]\n", name);
    for (const std::string& end : {std::string("a ab"), std::string("b ab"), std::string("b bc"), std::string("c bc"),
                                   std::string("c ca"), last})
      text += fmt::format(
          "[[link]]\nbetween = [\"{}/gpu\", \"{}\"]\nkind = \"PCIe\"\nbandwidth = \"1 GB/s\"\nlatency = \"1 us\"\n",
          end.substr(0, 1), end.substr(2));
    return text;
  };
  EXPECT_NO_THROW(parse_cluster(machine("a ca"), "my.toml"));
  EXPECT_TRUE(says(error_of(machine("a ab")), {"a.0/gpu.0 cannot reach c.0/gpu.0"}));
}

TEST(MachineMistakes, NotToml) {
  EXPECT_TRUE(
      says(error_with("sms = 80", "sms = 80\nsms = 81"), {"my.toml:8: not TOML: ", "'sms'", "docs/machines.md"}));
  EXPECT_TRUE(says(error_with("[switch.tor]", "[switch.tor"), {"my.toml:12: not TOML: "}));
  EXPECT_TRUE(says(error_with("\"25 GB/s\"", "25 GB/s"), {"my.toml:22: not TOML: "}));
  EXPECT_TRUE(says(error_with("[switch.tor]", "[device.gpu]"), {"my.toml:12: not TOML: "}));
  EXPECT_TRUE(says(error_of("name = \"\xff\""), {"my.toml:1: not TOML: "}));
  for (const char* text : {"{\"measured_step\": 1}", "[[[a]]]", "[[=", "[=", "[", "[[", "a", "= 1", "a = ", "a.", "\\"})
    EXPECT_TRUE(says(error_of(text), {"my.toml:1: not TOML: "})) << text;
}

TEST(MachineMistakes, TheFormBeforeToml) {
  for (const char* text : {"# two nodes\n\ncluster tiny\ndevice gpu\n", "\n \ndevice gpu\n  f32 = 1 TFLOP/s\n",
                           "\r\n\r\n  node box x2\r\n", "\n\nswitch\tbox/inner\n", "\n#\nlink box/gpu tor"})
    EXPECT_TRUE(
        says(error_of(text), {"my.toml:3: this is the form that cluster files had before", "TOML", "docs/machines.md"}))
        << text;
  for (const char* text : {"node = 1", "device.gpu = 1", "link . a = 1", "device"})
    EXPECT_EQ(error_of(text).find("before"), std::string::npos) << text;
}

// Deeper than files are.
TEST(MachineMistakes, DeepFiles) {
  std::string dotted = "a", nested = "a = ";
  for (int i = 0; i < 3000; ++i) {
    dotted += ".a";
    nested += "[";
  }
  EXPECT_TRUE(says(error_of(dotted + " = 1"), {"my.toml:1: "}));
  EXPECT_TRUE(says(error_of("[" + dotted + "]"), {"my.toml:1: "}));
  EXPECT_TRUE(says(error_of(nested), {"my.toml:1: "}));
}

// Whatever is in a file: a cluster, or a user error that names the file.
TEST(MachineMistakes, DamagedFiles) {
  std::uint32_t counter = 0;
  const auto random = [&](std::size_t below) { return philox({9, 9}, counter++, 0)[0] % below; };
  const std::string marks = "\n =#x/.0-,\t9Kz[]{}\"\\";
  int errors = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = kTinyMachine;
    for (std::size_t changes = 1 + random(4); changes > 0; --changes) {
      const std::size_t at = random(text.size());
      switch (random(3)) {
        case 0:
          text[at] = marks[random(marks.size())];
          break;
        case 1:
          text.erase(at, 1 + random(20));
          break;
        default:
          text.insert(at, text.substr(random(text.size()), random(30)));
      }
    }
    try {
      const Cluster c = parse_cluster(text, "my.toml");
      EXPECT_EQ(parse_cluster(save_cluster(c), "again"), c) << text;
    } catch (const UserError& error) {
      ++errors;
      EXPECT_EQ(std::string(error.what()).rfind("my.toml:", 0), 0u) << error.what();
    }
  }
  EXPECT_GT(errors, 1000);
}

TEST(MachineMistakes, UnknownPresetsAndCounts) {
  EXPECT_TRUE(says(user_error([] { load_cluster("dgx-h300"); }), {"`machine dgx-h300`: ", "dgx-h100", "cpu-hosts"}));
  EXPECT_TRUE(says(user_error([] { load_cluster("dgx-h100:0"); }), {"`machine dgx-h100:0`: ", "dgx-h100:4"}));
  EXPECT_TRUE(says(user_error([] { load_cluster("dgx-h100:many"); }), {"number of nodes"}));
  EXPECT_TRUE(says(user_error([] { load_cluster("none/such"); }), {"none/such", "cannot read"}));
  EXPECT_TRUE(says(user_error([] { load_cluster("no-such.toml"); }), {"no-such.toml", "cannot read"}));
}

}  // namespace
}  // namespace overtake
