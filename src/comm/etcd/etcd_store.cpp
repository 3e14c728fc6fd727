#include "comm/etcd/etcd_store.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "base/base64.h"
#include "base/error.h"
#include "base/json.h"
#include "comm/etcd/http.h"

namespace overtake {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr int kLeaseSeconds = 24 * 60 * 60;
constexpr milliseconds kFirstPause{20}, kLongestPause{400};

// Over the JSON gateway that etcd has had since version 3.4: https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway
class EtcdStore final : public Store {
 public:
  explicit EtcdStore(const EtcdOptions& options) : options_(options) {}

  bool put(const std::string& name, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    const std::string key = key_of(name);
    const Json put = {{"key", key}, {"value", to_base64(value)}, {"lease", lease()}};
    const Json answer = ask("kv/txn", {{"compare", {{{"target", "CREATE"}, {"key", key}, {"create_revision", "0"}}}},
                                       {"success", {{{"request_put", put}}}},
                                       {"failure", {{{"request_range", {{"key", key}}}}}}});
    // A taken name may have been taken by this very put, asked for twice because the first answer was lost. That shows
    // by the lease, which is this store's own.
    const bool is_put = understood(answer, [&] {
      return answer.value("succeeded", false) ||
             answer.at("responses").at(0).at("response_range").at("kvs").at(0).value("lease", "") == lease_;
    });
    return is_put && put_.insert(name).second;
  }

  std::optional<std::string> get(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    const Json answer = ask("kv/range", {{"key", key_of(name)}});
    return understood(answer, [&]() -> std::optional<std::string> {
      const auto kvs = answer.find("kvs");
      if (kvs == answer.end() || kvs->empty()) return std::nullopt;
      const std::string text = kvs->at(0).value("value", "");
      std::optional<std::string> value = from_base64(text);
      if (!value) fail_strange(text);
      return value;
    });
  }

 private:
  std::string key_of(const std::string& name) const { return to_base64("overtake/" + options_.name + "/" + name); }

  // What `read` finds in an answer that need not be etcd's.
  template <class Read>
  std::invoke_result_t<Read> understood(const Json& answer, const Read& read) const {
    try {
      return read();
    } catch (const Json::exception&) {
      fail_strange(answer.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
  }

  const std::string& lease() {
    if (lease_.empty()) {
      const Json answer = ask("lease/grant", {{"TTL", std::to_string(kLeaseSeconds)}});
      lease_ = understood(answer, [&] { return answer.at("ID").get<std::string>(); });
    }
    return lease_;
  }

  const std::string& address() const { return options_.addresses[at_ % options_.addresses.size()]; }

  [[noreturn]] void fail_strange(const std::string& body) const {
    fail_user("etcd at {}: what answers there is no etcd of version 3.4 or later: '{}'; name the address of one",
              address(), body.substr(0, 200));
  }

  // Goes on with the next address where one does not answer, until the patience is over.
  Json ask(const std::string& what, const Json& request) {
    const std::string body = request.dump();
    const auto deadline = options_.now() + options_.patience;
    milliseconds pause = kFirstPause;
    while (true) {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - options_.now());
      const HttpReply reply = http_.post(fmt::format("http://{}/v3/{}", address(), what), body,
                                         std::clamp(left, options_.least_time_out, options_.most_time_out));
      if (reply.status == 200) return parsed(reply.body);
      if (reply.status != 0 && reply.status < 500) refuse(reply);
      if (options_.now() >= deadline) fail_gone(reply);
      if (++at_ % options_.addresses.size() == 0 || options_.addresses.size() == 1) {
        options_.sleep_until(std::min(options_.now() + pause, deadline));
        pause = std::min(pause * 2, kLongestPause);
      }
    }
  }

  Json parsed(const std::string& body) const {
    Json json = parse_json_or_discard(body);
    if (!json.is_object()) fail_strange(body);
    return json;
  }

  // What etcd says of an error, or the beginning of whatever it is.
  static std::string reason_in(const std::string& body) {
    const Json json = parse_json_or_discard(body);
    return json.is_object() && json.contains("error") && json["error"].is_string() ? json["error"].get<std::string>()
                                                                                   : body.substr(0, 200);
  }

  [[noreturn]] void refuse(const HttpReply& reply) const {
    if (reply.status == 404 || reply.status == 405) fail_strange(reply.body);
    fail_user("etcd at {}: refuses (HTTP {}): {}; name one that takes requests without a password and has room",
              address(), reply.status, reason_in(reply.body));
  }

  [[noreturn]] void fail_gone(const HttpReply& reply) const {
    fail_user("etcd at {}: gone: no answer for {:g} s: {}; start it, or name one that all ranks reach",
              fmt::join(options_.addresses, ", "), std::chrono::duration<double>(options_.patience).count(),
              reason_in(reply.body));
  }

  const EtcdOptions options_;
  std::mutex mutex_;
  Http http_;
  std::size_t at_ = 0;         // the address that is asked, counted on
  std::string lease_;          // of all that is put
  std::set<std::string> put_;  // names
};

}  // namespace

bool has_etcd() { return true; }

std::unique_ptr<Store> make_etcd_store(const EtcdOptions& options) { return std::make_unique<EtcdStore>(options); }

}  // namespace overtake
