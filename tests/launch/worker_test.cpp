#include "launch/worker.h"

#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <map>

#include "launch/own_address.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Worker> worker_of(const Variables& variables) {
  return worker_from([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

std::string error_of(const Variables& variables) {
  return user_error([&] { worker_of(variables); });
}

// "rank/size local job store address"
std::string text_of(const std::optional<Worker>& w) {
  if (!w) return "none";
  return fmt::format("{}/{} {} {} {} {}", w->rank, w->size, w->local_rank, w->job, w->store, w->address);
}

const Variables kOurs = {{"OVERTAKE_RANK", "2"}, {"OVERTAKE_SIZE", "4"},   {"OVERTAKE_LOCAL_RANK", "1"},
                         {"OVERTAKE_JOB", "j"},  {"OVERTAKE_STORE", "/s"}, {"OVERTAKE_ADDRESS", "10.0.0.2"}};
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "3"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "10.0.0.1"},
                             {"TORCHELASTIC_RUN_ID", "run"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"},
                             {"OVERTAKE_STORE", "/s"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "8"},         {"SLURM_LOCALID", "1"},
                          {"SLURM_JOB_ID", "71"}, {"SLURM_STEP_ID", "0"},        {"SLURM_STEP_NUM_NODES", "1"},
                          {"PMI_RANK", "5"},      {"OVERTAKE_STORE", "etcd://h"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "prterun/1"},
                            {"PMIX_RANK", "1"},
                            {"OVERTAKE_STORE", "/s"}};
const Variables kMpich = {{"PMI_RANK", "1"},        {"PMI_SIZE", "2"},     {"MPI_LOCALRANKID", "1"},
                          {"MPI_LOCALNRANKS", "2"}, {"OVERTAKE_JOB", "j"}, {"OVERTAKE_STORE", "/s"}};

TEST(Worker, IsWhatTheLauncherSays) {
  EXPECT_EQ(text_of(worker_of({})), "none");
  EXPECT_EQ(text_of(worker_of(kOurs)), "2/4 1 j /s 10.0.0.2");
  EXPECT_EQ(text_of(worker_of(kTorchrun)), "3/4 3 run.0 /s ");
  EXPECT_EQ(text_of(worker_of(kSlurm)), "5/8 1 71.0 etcd://h ");
  EXPECT_EQ(text_of(worker_of(kOpenMpi)), "1/2 1 prterun-1 /s ");
  EXPECT_EQ(text_of(worker_of(kMpich)), "1/2 1 j /s ");
}

TEST(Worker, NeedsNothingMoreWhereItIsAlone) {
  EXPECT_EQ(text_of(worker_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}})), "0/1 0   ");
  EXPECT_EQ(text_of(worker_of({{"OVERTAKE_RANK", ""}, {"RANK", ""}})), "none");
  EXPECT_EQ(text_of(worker_of({{"OVERTAKE_STORE", "/s"}, {"OVERTAKE_JOB", "j"}})), "none");
}

// mpirun below srun, overtake below torchrun: the innermost counts.
TEST(Worker, BelongsToTheInnermostLauncher) {
  EXPECT_EQ(text_of(worker_of(with(kSlurm, kOpenMpi))), "1/2 1 prterun-1 /s ");
  EXPECT_EQ(text_of(worker_of(with(kSlurm, kMpich))), "1/2 1 j /s ");
  EXPECT_EQ(text_of(worker_of(with(with(kTorchrun, kSlurm), kOurs))), "2/4 1 j /s 10.0.0.2");
}

TEST(Worker, OfABatchScriptIsNone) {
  Variables batch = kSlurm;
  batch.erase("SLURM_STEP_ID");
  batch.erase("PMI_RANK");
  EXPECT_EQ(text_of(worker_of(batch)), "none");
}

TEST(Worker, TakesWhatTheUserSaysFirst) {
  EXPECT_EQ(text_of(worker_of(with(kTorchrun, {{"OVERTAKE_JOB", "mine"}, {"OVERTAKE_ADDRESS", "h7"}}))),
            "3/4 3 mine /s h7");
}

TEST(Worker, HalfSetIsAUserError) {
  for (const Variables& all : {kOurs, kTorchrun, kSlurm, kOpenMpi, kMpich}) {
    for (const char* name : {"OVERTAKE_RANK", "OVERTAKE_SIZE", "OVERTAKE_LOCAL_RANK", "RANK", "WORLD_SIZE",
                             "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_SIZE", "OVERTAKE_STORE"}) {
      Variables some = all;
      if (some.erase(name) == 0) continue;
      EXPECT_TRUE(says(error_of(some), {std::string(name) + ": not set, but ", "; s"})) << name;
    }
  }
}

TEST(Worker, NonsenseIsAUserErrorWithItsValue) {
  const struct {
    Variables variables;
    std::vector<std::string_view> words;
  } table[] = {
      {with(kOurs, {{"OVERTAKE_RANK", "4"}}), {"OVERTAKE_RANK=4", "from 0 to 3", "overtake launch"}},
      {with(kOurs, {{"OVERTAKE_RANK", "-1"}}), {"OVERTAKE_RANK=-1", "from 0 to 3"}},
      {with(kOurs, {{"OVERTAKE_RANK", "2x"}}), {"OVERTAKE_RANK=2x", "number"}},
      {with(kOurs, {{"OVERTAKE_RANK", "99999999999"}}), {"OVERTAKE_RANK=99999999999"}},
      {with(kOurs, {{"OVERTAKE_SIZE", "0"}}), {"OVERTAKE_SIZE=0", "from 1 to"}},
      {with(kOurs, {{"OVERTAKE_SIZE", "four"}}), {"OVERTAKE_SIZE=four"}},
      {with(kOurs, {{"OVERTAKE_LOCAL_RANK", "4"}}), {"OVERTAKE_LOCAL_RANK=4"}},
      {with(kOurs, {{"OVERTAKE_JOB", "../x"}}), {"OVERTAKE_JOB=../x", "without '/'"}},
      {with(kOurs, {{"OVERTAKE_JOB", ".."}}), {"OVERTAKE_JOB=.."}},
      {with(kTorchrun, {{"RANK", "9"}}), {"RANK=9", "from 0 to 3", "torchrun"}},
      {with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}}), {"OVERTAKE_JOB: not set", "torchrun", "new for every run"}},
      {with(kSlurm, {{"SLURM_NTASKS", "5"}}), {"SLURM_PROCID=5", "from 0 to 4", "srun"}},
      {with(kMpich, {{"OVERTAKE_JOB", ""}}), {"OVERTAKE_JOB: not set", "mpirun"}},
      {{{"PMI_RANK", "1"}}, {"PMI_RANK=1", "OVERTAKE_RANK"}},
      {{{"PMIX_RANK", "1"}}, {"PMIX_RANK=1", "OVERTAKE_RANK"}},
  };
  for (const auto& row : table) {
    const std::string text = error_of(row.variables);
    for (const std::string_view word : row.words) EXPECT_TRUE(says(text, {word}));
  }
}

// An address of this host that is not the loopback; empty where it has none.
std::string some_own_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string out;
  for (const ifaddrs* a = all; a != nullptr && out.empty(); a = a->ifa_next) {
    if (a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_INET || (a->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char text[NI_MAXHOST];
    getnameinfo(a->ifa_addr, sizeof(sockaddr_in), text, sizeof text, nullptr, 0, NI_NUMERICHOST);
    out = text;
  }
  freeifaddrs(all);
  return out;
}

TEST(Worker, HasAnAddressWhereThereAreManyHosts) {
  const Variables two_hosts = with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}});
  EXPECT_EQ(worker_of(with(two_hosts, {{"OVERTAKE_ADDRESS", "10.0.0.2"}}))->address, "10.0.0.2");
  for (const char* contact : {"127.0.0.1", "no.such.host.invalid"}) {
    EXPECT_TRUE(says(error_of(with(two_hosts, {{"MASTER_ADDR", contact}})),
                     {"OVERTAKE_ADDRESS: not set", std::string("MASTER_ADDR=") + contact, "every host"}));
  }
  EXPECT_TRUE(says(error_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}})),
                   {"OVERTAKE_ADDRESS: not set", "what mpirun says"}));
  EXPECT_TRUE(says(error_of(with(kSlurm, {{"SLURM_STEP_NUM_NODES", "2"}})), {"OVERTAKE_ADDRESS: not set", "srun"}));
  const std::string own = some_own_address();
  if (own.empty()) GTEST_SKIP() << "this host has the loopback only";
  EXPECT_EQ(worker_of(with(two_hosts, {{"MASTER_ADDR", own}}))->address, own);
  EXPECT_EQ(worker_of(with(kSlurm, {{"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_LAUNCH_NODE_IPADDR", own}}))->address, own);
}

TEST(OwnAddress, IsNotTheLoopback) {
  EXPECT_EQ(own_address_towards("127.0.0.1"), std::nullopt);
  EXPECT_EQ(own_address_towards("::1"), std::nullopt);
  EXPECT_EQ(own_address_towards("no.such.host.invalid"), std::nullopt);
}

}  // namespace
}  // namespace overtake
