// How fast transfers between processes are, against the link they go over.
//
//   bench_comm [--mib 1,16,64] [--rounds 5] [--gbit 1] [--json]      on every rank, as scripts/test_cluster.py starts
//   it bench_comm --ranks 2 ...                                          forks so many on this host, over the loopback
//
// Bus bandwidth is what each rank must send at least, by the time from when all were ready until the last was done:
// 2 (n-1)/n of the bytes for all_reduce, (n-1)/n for reduce_scatter, all of them for a send (from rank 0 to 1). Sums
// are checked. bench/comm/run.py makes the hosts and adds PyTorch's gloo.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/gloo/gloo_group.h"

namespace {

using namespace overtake;

struct Options {
  std::vector<double> mib{1, 16, 64};
  int rounds = 5;
  double gbit = 0;  // of the link; 0: not known
  int ranks = 0;    // to fork; 0: the environment says which rank this is
  bool json = false;
};

Options parse(int argc, char** argv) {
  Options out;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--json") {
      out.json = true;
      continue;
    }
    if (i + 1 == argc) fail_user("{}: unknown, or without a value", name);
    const std::string value = argv[++i];
    if (name == "--mib") {
      out.mib.clear();
      std::istringstream in(value);
      for (std::string item; std::getline(in, item, ',');) out.mib.push_back(std::stod(item));
    } else if (name == "--rounds") {
      out.rounds = std::stoi(value);
    } else if (name == "--gbit") {
      out.gbit = std::stod(value);
    } else if (name == "--ranks") {
      out.ranks = std::stoi(value);
    } else {
      fail_user("{}: unknown; --mib, --rounds, --gbit, --ranks, --json", name);
    }
  }
  return out;
}

float value_of(int rank, std::size_t i) { return static_cast<float>((i % 1000) * static_cast<std::size_t>(rank + 1)); }

// The first element of what must be summed here that is not; empty when all are right.
std::string wrong(TransferKind kind, const Group& group, const std::vector<float>& x) {
  const int n = group.size();
  PartRange range{0, x.size()};
  if (kind == TransferKind::reduce_scatter) range = part_of(x.size(), n, group.rank());
  for (std::size_t i = range.begin; i < range.end; ++i) {
    float expected = value_of(group.rank(), i);
    if (kind == TransferKind::send) {
      if (group.rank() == 1) expected = value_of(0, i);
    } else {
      expected = value_of(0, i) * static_cast<float>(n * (n + 1) / 2);
    }
    if (x[i] != expected) return fmt::format("[{}] is {}, not {}", i, x[i], expected);
  }
  return "";
}

// Seconds until the last rank was done, the median of the rounds.
double measure(Group& group, TransferKind kind, std::size_t bytes, int rounds) {
  std::vector<float> x(bytes / 4), times(static_cast<std::size_t>(group.size()));
  std::vector<double> all;
  for (int round = 0; round <= rounds; ++round) {  // the first one is not counted
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = value_of(group.rank(), i);
    group.barrier();
    const auto begin = std::chrono::steady_clock::now();
    if (kind != TransferKind::send) {
      group.wait(group.start({kind, x.data(), x.size(), DType::f32, -1, {.tag = 1}}));
    } else if (group.rank() == 0) {
      group.wait(group.send(1, x.data(), x.size(), DType::f32, {.tag = 1}));
    } else if (group.rank() == 1) {
      group.wait(group.recv(0, x.data(), x.size(), DType::f32, {.tag = 1}));
    }
    const std::chrono::duration<float> took = std::chrono::steady_clock::now() - begin;
    if (const std::string error = wrong(kind, group, x); !error.empty()) {
      fail_user("rank {}: {} of {} bytes: {}", group.rank(), to_string(kind), bytes, error);
    }
    times[static_cast<std::size_t>(group.rank())] = took.count();
    group.wait(group.all_gather(times.data(), times.size(), DType::f32, {.tag = 2}));
    if (round > 0) all.push_back(static_cast<double>(*std::max_element(times.begin(), times.end())));
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void print(const Options& options, TransferKind kind, std::size_t bytes, int n, double seconds) {
  const double share = kind == TransferKind::send             ? 1
                       : kind == TransferKind::reduce_scatter ? static_cast<double>(n - 1) / n
                                                              : 2.0 * (n - 1) / n;
  const double gbit = static_cast<double>(bytes) * share * 8e-9 / seconds;
  if (options.json) {
    fmt::print(
        "{{\"who\": \"overtake\", \"what\": \"{}\", \"ranks\": {}, \"bytes\": {}, \"ms\": {:.3f}, \"gbit\": {:.3f}}}\n",
        to_string(kind), n, bytes, seconds * 1e3, gbit);
  } else {
    const std::string part = options.gbit > 0 ? fmt::format("{:6.1f} % of the link", 100 * gbit / options.gbit) : "";
    fmt::print("{:15} {:8.2f} MiB  {:9.2f} ms  {:7.3f} Gbit/s  {}\n", to_string(kind),
               static_cast<double>(bytes) / (1 << 20), seconds * 1e3, gbit, part);
  }
  std::fflush(stdout);
}

void run_rank(const Options& options, const GlooOptions& gloo) {
  const auto group = make_gloo_group(gloo);
  for (const TransferKind kind : {TransferKind::all_reduce, TransferKind::reduce_scatter, TransferKind::send}) {
    for (const double mib : options.mib) {
      const auto bytes = static_cast<std::size_t>(mib * (1 << 20)) / 4 * 4;
      const double seconds = measure(*group, kind, bytes, options.rounds);
      if (group->rank() == 0) print(options, kind, bytes, group->size(), seconds);
    }
  }
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) fail_user("{} is not set; start with scripts/test_cluster.py, or give --ranks", name);
  return value;
}

// Every rank a process; the first that fails is what is told.
int fork_ranks(const Options& options) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("bench-comm-{}", getpid());
  std::vector<pid_t> ids;
  for (int rank = 0; rank < options.ranks; ++rank) {
    ids.push_back(fork());
    if (ids.back() != 0) continue;
    try {
      GlooOptions gloo;
      gloo.folder = folder;
      gloo.job = "bench";
      gloo.rank = rank;
      gloo.size = options.ranks;
      run_rank(options, gloo);
      _exit(0);
    } catch (const std::exception& error) {
      fmt::print(stderr, "rank {}: {}\n", rank, error.what());
      _exit(1);
    }
  }
  int code = 0;
  for (const pid_t id : ids) {
    int status = 0;
    waitpid(id, &status, 0);
    if (status != 0) code = 1;
  }
  std::filesystem::remove_all(folder);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    if (options.ranks > 0) return fork_ranks(options);
    GlooOptions gloo;
    gloo.folder = variable("OVERTAKE_STORE");
    gloo.job = variable("OVERTAKE_JOB");
    gloo.rank = std::stoi(variable("OVERTAKE_RANK"));
    gloo.size = std::stoi(variable("OVERTAKE_SIZE"));
    gloo.address = variable("OVERTAKE_ADDRESS");
    run_rank(options, gloo);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_comm: {}\n", error.what());
    return 2;
  }
}
