// A rank of cluster_test.py: all-reduces over gloo, and what came of them in one line: "done" or "fault <rank> <text>".
//
//   netns_rank MIB ROUNDS TIME_OUT_MS      ROUNDS 0: without end

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/gloo/gloo_group.h"

int main(int argc, char** argv) {
  using namespace overtake;
  try {
    OVERTAKE_CHECK(argc == 4, "{} arguments", argc - 1);
    GlooOptions options;
    options.folder = std::getenv("OVERTAKE_STORE");
    options.job = std::getenv("OVERTAKE_JOB");
    options.rank = std::stoi(std::getenv("OVERTAKE_RANK"));
    options.size = std::stoi(std::getenv("OVERTAKE_SIZE"));
    options.address = std::getenv("OVERTAKE_ADDRESS");
    options.group.time_out = std::chrono::milliseconds(std::stoi(argv[3]));
    const auto group = make_gloo_group(options);
    fmt::print("begins\n");
    std::fflush(stdout);
    std::vector<float> x(static_cast<std::size_t>(std::stoi(argv[1])) << 18);
    const auto n = static_cast<std::size_t>(options.size);
    const int rounds = std::stoi(argv[2]);
    for (int round = 0; rounds == 0 || round < rounds; ++round) {
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(i % 1000 + static_cast<std::size_t>(options.rank));
      group->wait(group->all_reduce(x.data(), x.size(), DType::f32, {.tag = 1}));
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto expected = i % 1000 * n + n * (n - 1) / 2;
        if (x[i] != static_cast<float>(expected)) fail_user("x[{}] is {}, not {}", i, x[i], expected);
      }
    }
    fmt::print("done\n");
  } catch (const CommError& error) {
    fmt::print("fault {} {}\n", error.rank(), error.what());
    return 3;
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 2;
  }
}
