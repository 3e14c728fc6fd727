#include "launch/worker.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "launch/own_address.h"

namespace overtake {
namespace {

// The variables by which a launcher tells a process who it is.
struct Launcher {
  const char* name;
  std::vector<const char*> signs;  // each of them shows that this launcher is at work
  const char *rank, *size, *local_rank;
  const char* local_size = nullptr;   // how many ranks are on this host, or
  const char* hosts = nullptr;        // how many hosts there are
  const char* contact = nullptr;      // a host that all can reach
  std::vector<const char*> job = {};  // together its own for every run; the first must be there
};

// In this order: a launcher sees, and hands on, the variables of the one it was started by.
const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all = {
      {.name = "overtake launch",
       .signs = {"OVERTAKE_RANK", "OVERTAKE_SIZE", "OVERTAKE_LOCAL_RANK"},
       .rank = "OVERTAKE_RANK",
       .size = "OVERTAKE_SIZE",
       .local_rank = "OVERTAKE_LOCAL_RANK"},
      // Its run id is "none" where nobody gave one. A restart by torchrun is another run for us.
      {.name = "torchrun",
       .signs = {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
       .rank = "RANK",
       .size = "WORLD_SIZE",
       .local_rank = "LOCAL_RANK",
       .local_size = "LOCAL_WORLD_SIZE",
       .contact = "MASTER_ADDR",
       .job = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
      // Open MPI.
      {.name = "mpirun",
       .signs = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
       .rank = "OMPI_COMM_WORLD_RANK",
       .size = "OMPI_COMM_WORLD_SIZE",
       .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
       .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
       .job = {"PMIX_NAMESPACE"}},
      // MPICH and its kin.
      {.name = "mpirun",
       .signs = {"MPI_LOCALRANKID"},
       .rank = "PMI_RANK",
       .size = "PMI_SIZE",
       .local_rank = "MPI_LOCALRANKID",
       .local_size = "MPI_LOCALNRANKS"},
      // Without a step it is a batch script, which has these variables but is not one of the ranks.
      {.name = "srun",
       .signs = {"SLURM_STEP_ID"},
       .rank = "SLURM_PROCID",
       .size = "SLURM_NTASKS",
       .local_rank = "SLURM_LOCALID",
       .hosts = "SLURM_STEP_NUM_NODES",
       .contact = "SLURM_LAUNCH_NODE_IPADDR",
       .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
  };
  return all;
}

class Reader {
 public:
  Reader(const Environment& environment, const Launcher& launcher) : get_(environment), launcher_(launcher) {}

  Worker worker() const {
    Worker out;
    out.size = number(launcher_.size, 1, 1'000'000);
    out.rank = number(launcher_.rank, 0, out.size - 1);
    out.local_rank = number(launcher_.local_rank, 0, out.size - 1);
    out.job = job(out.size);
    out.store = get("OVERTAKE_STORE").value_or("");
    if (out.store.empty() && out.size > 1) {
      fail_user(
          "OVERTAKE_STORE: not set, but {} started {} ranks, which must meet; set it to a folder that all of them "
          "see, or to etcd://HOST:PORT",
          launcher_.name, out.size);
    }
    out.address = address(out.size);
    return out;
  }

 private:
  std::optional<std::string> get(const char* name) const { return name == nullptr ? std::nullopt : get_(name); }

  int number(const char* name, int least, int most) const {
    const std::optional<std::string> text = get(name);
    if (!text) {
      fail_user("{}: not set, but {} is; start all ranks with {}, or set all of {}, {} and {}", name, sign(),
                launcher_.name, launcher_.rank, launcher_.size, launcher_.local_rank);
    }
    int value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value < least || value > most) {
      fail_user("{}={}: must be a number from {} to {}; start all ranks with {}, or unset it", name, *text, least, most,
                launcher_.name);
    }
    return value;
  }

  const char* sign() const {
    return *std::find_if(launcher_.signs.begin(), launcher_.signs.end(), [&](const char* s) { return get(s); });
  }

  std::string job(int size) const {
    std::string out = get("OVERTAKE_JOB").value_or("");
    if (out.empty() && !launcher_.job.empty() && get(launcher_.job[0]).value_or("none") != "none") {
      for (const char* name : launcher_.job) {
        if (const auto part = get(name)) out += (out.empty() ? "" : ".") + *part;
      }
      std::replace(out.begin(), out.end(), '/', '-');
    }
    if (out.empty() && size > 1) {
      fail_user(
          "OVERTAKE_JOB: not set, and {} does not say which run this is; set it to a name that is new for every "
          "run and the same for all its ranks",
          launcher_.name);
    }
    if (out.find('/') != std::string::npos || out == "." || out == "..") {
      fail_user("OVERTAKE_JOB={}: must be a name without '/'; choose another", out);
    }
    return out;
  }

  bool has_many_hosts(int size) const {
    if (get(launcher_.local_size)) return number(launcher_.local_size, 1, size) < size;
    return get(launcher_.hosts) && number(launcher_.hosts, 1, size) > 1;
  }

  std::string address(int size) const {
    if (const auto given = get("OVERTAKE_ADDRESS")) return *given;
    if (!has_many_hosts(size)) return "";
    const std::optional<std::string> contact = get(launcher_.contact);
    const std::optional<std::string> own = contact ? own_address_towards(*contact) : std::nullopt;
    if (!own) {
      fail_user(
          "OVERTAKE_ADDRESS: not set, and which address of this host the others reach does not follow from {}; "
          "set it on every host to that host's address",
          contact ? fmt::format("{}={}", launcher_.contact, *contact) : fmt::format("what {} says", launcher_.name));
    }
    return *own;
  }

  const Environment& get_;
  const Launcher& launcher_;
};

}  // namespace

std::optional<Worker> worker_from(const Environment& environment) {
  const Environment get = [&](const std::string& name) {
    const std::optional<std::string> value = environment(name);
    return value && value->empty() ? std::nullopt : value;
  };
  for (const Launcher& launcher : launchers()) {
    const auto& signs = launcher.signs;
    if (std::any_of(signs.begin(), signs.end(), [&](const char* s) { return get(s); })) {
      return Reader(get, launcher).worker();
    }
  }
  for (const char* name : {"PMI_RANK", "PMIX_RANK"}) {
    if (const auto value = get(name)) {
      fail_user(
          "{}={}: set by a launcher that does not say the rest in a way that is known; set OVERTAKE_RANK, "
          "OVERTAKE_SIZE and OVERTAKE_LOCAL_RANK, or unset it",
          name, *value);
    }
  }
  return std::nullopt;
}

std::optional<Worker> worker_from_environment() {
  return worker_from([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace overtake
