#include "machine/measured_step.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace overtake {
namespace {

constexpr int kFormat = 1;

}  // namespace

std::string save_json(const MeasuredStep& measured) {
  return nlohmann::json{{"measured_step", kFormat}, {"key", measured.key},
                        {"of", measured.of},        {"device", measured.device},
                        {"ns", measured.ns},        {"step", parse_json(save_json(measured.step))}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

MeasuredStep load_measured_step(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  const auto damaged = [&](const std::string& why) {
    fail_user("profile {}: {}; let `overtake simulate` write it, with `measure DEVICE` and `save_profile FILE`",
              path.string(), why);
  };
  MeasuredStep out;
  int format = 0;
  try {
    const auto in = parse_json(text);
    format = checked<int>(in.at("measured_step"));
    out.key = in.at("key").get<std::string>();
    out.of = in.at("of").get<std::string>();
    out.device = in.at("device").get<std::string>();
    out.ns = checked<std::vector<std::int64_t>>(in.at("ns"));
    out.step = load_graph_json(in.at("step").dump());
  } catch (const nlohmann::json::exception& e) {
    damaged(fmt::format("it is damaged or no profile ({})", e.what()));
  } catch (const UserError& e) {
    damaged(fmt::format("the step in it is of no use ({})", e.what()));
  }
  if (format != kFormat) damaged(fmt::format("it has format {}, and this build reads {}", format, kFormat));
  if (out.ns.size() != out.step.tasks.size())
    damaged(fmt::format("it has {} times for {} tasks", out.ns.size(), out.step.tasks.size()));
  if (std::ranges::any_of(out.ns, [](std::int64_t ns) { return ns < 0; })) damaged("a time is negative");
  return out;
}

}  // namespace overtake
