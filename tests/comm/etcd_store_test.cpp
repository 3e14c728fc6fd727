#include "comm/etcd/etcd_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "comm/gloo/gloo_group.h"
#include "comm/roll_call.h"
#include "etcd_server.h"
#include "exercise.h"
#include "processes.h"

namespace overtake {
namespace {

using namespace std::chrono_literals;

class EtcdStore : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_etcd()) GTEST_SKIP() << "this build has no libcurl";
    if (etcd_program().empty()) GTEST_SKIP() << "etcd is not installed; `scripts/setup.sh tests` brings it";
  }
  static GlooOptions options(int rank, int size) {
    GlooOptions out;
    out.rank = rank;
    out.size = size;
    out.group = {.time_out = 20s, .chunk_bytes = 8192};
    return out;
  }
};

TEST_F(EtcdStore, GivesANameToOneOnly) {
  const EtcdServer etcd;
  std::atomic<int> winner{-1}, winners{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      if (open_store(etcd.store())->put("name", "value " + std::to_string(i))) {
        winner = i;
        ++winners;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  const auto store = open_store(etcd.store());
  EXPECT_EQ(store->get("name"), "value " + std::to_string(winner));
  EXPECT_EQ(store->get("other"), std::nullopt);
  EXPECT_TRUE(store->put("other", "x"));
  EXPECT_FALSE(store->put("other", "x"));  // not even to the one who has it
  EXPECT_EQ(open_store(etcd.store("another-job"))->get("name"), std::nullopt);
}

TEST_F(EtcdStore, KeepsAnyBytes) {
  const EtcdServer etcd;
  const auto store = open_store(etcd.store());
  const std::string odd("\0\xff\n\"", 4), large(1 << 20, 'x');
  EXPECT_TRUE(store->put("odd", odd));
  EXPECT_TRUE(store->put("empty", ""));
  EXPECT_TRUE(store->put("large", large));
  EXPECT_EQ(store->get("odd"), odd);
  EXPECT_EQ(store->get("empty"), "");
  EXPECT_EQ(store->get("large"), large);
}

// What is put is under a lease, of a day. Asked by hand, for our own side does not read it.
TEST_F(EtcdStore, ForgetsAfterADay) {
  const EtcdServer etcd;
  const auto store = open_store(etcd.store("j"));
  ASSERT_TRUE(store->put("name", "value"));
  const auto asked = [&](const std::string& path, const nlohmann::json& body) {
    const TemporaryFolder folder;
    const std::string in = folder.write("in", body.dump()).string(), out = (folder.path() / "out").string();
    const std::string command =
        fmt::format("curl -s --noproxy '*' -d @{} http://{}/v3/{} >{}", in, etcd.address(), path, out);
    EXPECT_EQ(std::system(command.c_str()), 0);
    std::ifstream text(out);
    return nlohmann::json::parse(text, nullptr, false);
  };
  if (std::system("curl --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "curl is not installed";
  const auto range = asked("kv/range", {{"key", to_base64("overtake/j/name")}});
  ASSERT_TRUE(range.contains("kvs")) << range;
  const auto lease = asked("lease/timetolive", {{"ID", range["kvs"][0].at("lease")}});
  EXPECT_EQ(lease.at("grantedTTL"), "86400") << lease;
}

TEST_F(EtcdStore, BringsRanksTogether) {
  const EtcdServer etcd;
  Processes processes;
  for (int rank = 0; rank < 3; ++rank) {
    processes.start([&, rank] {
      const auto store = open_store(etcd.store());
      if (!has_gloo())
        return "differs: " + std::string(call_roll(*store, {rank, 3, "m", "", 5s}).size() == 3 ? "" : "n");
      return "differs: " + exercise(*make_gloo_group(options(rank, 3), *store), 3);
    });
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(processes.join(i).text, "differs: ");
}

TEST_F(EtcdStore, IsNotNeededOnceRanksHaveMet) {
  if (!has_gloo()) GTEST_SKIP() << "this build has no gloo";
  EtcdServer etcd;
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([&, rank] {
      const auto store = open_store(etcd.store());
      const auto group = make_gloo_group(options(rank, 2), *store);
      if (rank == 0) etcd.send_signal(SIGKILL);
      float x = 1;
      for (int i = 0; i < 10; ++i) group->wait(group->all_reduce(&x, 1, DType::f32));
      return std::to_string(x);
    });
  }
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(processes.join(i).text, "1024.000000");
}

// Killed, or only silent, while a rank waits for another: it does not wait on.
TEST_F(EtcdStore, SaysWhenItGoes) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    EtcdServer etcd;
    std::thread later([&] {
      std::this_thread::sleep_for(500ms);
      etcd.send_signal(signal);
    });
    const auto store = open_store(etcd.store(), 1s);
    // Waiting on would end, an hour later, with another error.
    const std::string text = user_error([&] { call_roll(*store, {0, 2, "m", "", 1h}); });
    later.join();
    EXPECT_TRUE(says(text, {"etcd at " + etcd.address() + ": gone: no answer for 1 s: ", "; start it"}));
  }
}

TEST_F(EtcdStore, OutlastsARestart) {
  EtcdServer etcd;
  const auto store = open_store(etcd.store(), 20s);
  ASSERT_TRUE(store->put("name", "value"));
  etcd.end();
  std::thread asks([&] {
    EXPECT_EQ(store->get("name"), "value");
    EXPECT_TRUE(store->put("after", "value"));
  });
  std::this_thread::sleep_for(300ms);
  etcd.start();  // here, because it ends with the thread that starts it
  asks.join();
}

TEST_F(EtcdStore, AsksTheNextMember) {
  const EtcdServer etcd;
  const auto store = open_store(fmt::format("etcd://127.0.0.1:{},{}/job", free_port(), etcd.address()));
  EXPECT_TRUE(store->put("name", "value"));
  EXPECT_EQ(open_store(etcd.store())->get("name"), "value");
}

class NoEtcd : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_etcd()) GTEST_SKIP() << "this build has no libcurl";
  }
};

// A store whose patience ends by a clock that only pauses move on, and that waits for each answer however busy the
// machine is.
struct PatientStore {
  explicit PatientStore(const std::string& address, std::chrono::milliseconds patience = 300ms) {
    EtcdOptions options;
    options.addresses = {address};
    options.patience = patience;
    options.least_time_out = options.most_time_out = 5min;
    options.now = [this] { return time; };
    options.sleep_until = [this](auto then) {
      pauses.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(then - time));
      time = then;
    };
    store = make_etcd_store(options);
  }
  PatientStore(const PatientStore&) = delete;
  PatientStore& operator=(const PatientStore&) = delete;

  std::chrono::steady_clock::time_point time{};
  std::vector<std::chrono::milliseconds> pauses;
  std::unique_ptr<Store> store;
};

// The error of getting from whatever answers so.
std::string error_of(const FakeServer::Reply& reply) {
  const FakeServer server(std::vector<FakeServer::Reply>(50, reply));
  const PatientStore patient(server.address());
  const auto& store = patient.store;
  const std::string text = user_error([&] { store->get("name"); });
  EXPECT_TRUE(says(text, {"etcd at " + server.address() + ": ", "; "}));
  return text;
}

TEST_F(NoEtcd, NobodyIsThere) {
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  const PatientStore patient(address, 500ms);
  const std::string text = user_error([&] { patient.store->get("x"); });
  EXPECT_TRUE(says(text, {"etcd at " + address + ": gone: no answer for 0.5 s", "onnect", "start it"}));
  // Asked anew at longer and longer intervals, and no longer than its patience lasts.
  EXPECT_EQ(patient.pauses, (std::vector<std::chrono::milliseconds>{20ms, 40ms, 80ms, 160ms, 200ms}));
}

TEST_F(NoEtcd, SomeoneElseIsThere) {
  for (const FakeServer::Reply& reply : std::vector<FakeServer::Reply>{{404, "404 page not found"},
                                                                       {200, "<html>"},
                                                                       {200, "[]"},
                                                                       {200, "{\"kvs\": 5}"},
                                                                       {200, "{\"kvs\": [{\"value\": \"?\"}]}"}}) {
    EXPECT_TRUE(says(error_of(reply), {"no etcd of version 3.4 or later"})) << reply.body;
  }
  EXPECT_TRUE(says(error_of({401, R"({"error": "user name is empty"})"}), {"refuses (HTTP 401): user name is empty"}));
  EXPECT_TRUE(says(error_of({503, R"({"error": "etcdserver: no leader"})"}), {"gone", "etcdserver: no leader"}));
  EXPECT_TRUE(says(error_of({200, ""}), {"gone"}));
}

// The answer to a put is lost, and asked for anew the name is taken: by the same put, or by another.
TEST_F(NoEtcd, LostAnswers) {
  const std::string lease = R"({"ID": "77", "TTL": "86400"})";
  const auto taken = [](const std::string& by) {
    return R"({"responses": [{"response_range": {"kvs": [{"value": "eA==", "lease": ")" + by + R"("}]}}]})";
  };
  for (const auto& [by, is_put] : {std::pair("77", true), std::pair("78", false)}) {
    const FakeServer server({{200, lease}, {200, ""}, {200, taken(by)}});
    EXPECT_EQ(open_store("etcd://" + server.address())->put("name", "x"), is_put) << by;
  }
}

TEST(OpenStore, RefusesWhatIsNone) {
  for (const char* text : {"etcd://", "etcd://:2379", "etcd://h:0", "etcd://h:65536", "etcd://h:x", "etcd://h:1,",
                           "etcd://h:", "etcd://a@b:1", "etcd:///job"}) {
    EXPECT_TRUE(says(user_error([&] { open_store(text); }), {text, "no address of etcd", "etcd://HOST:PORT"})) << text;
  }
  EXPECT_TRUE(says(user_error([&] { open_store("http://h:1"); }), {"http://h:1", "etcd://"}));
  EXPECT_TRUE(says(user_error([&] { open_store(""); }), {"store ''", "folder"}));
}

TEST(OpenStore, TakesAFolder) {
  const TemporaryFolder folder;
  EXPECT_TRUE(open_store((folder.path() / "jobs/7").string())->put("name", "value"));
  EXPECT_EQ(FileStore(folder.path() / "jobs/7").get("name"), "value");
}

TEST(OpenStore, WithoutLibcurlSaysWhatToInstall) {
  if (has_etcd()) GTEST_SKIP() << "this build has libcurl";
  EXPECT_TRUE(says(user_error([] { open_store("etcd://h:1"); }), {"h:1", "libcurl4-openssl-dev"}));
}

}  // namespace
}  // namespace overtake
