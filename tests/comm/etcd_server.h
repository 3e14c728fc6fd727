#pragma once
// An etcd of a test's own, on free ports of the loopback.

#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/store.h"
#include "unit/temporary_folder.h"

namespace overtake {

// A port that nobody listens on.
inline int free_port() {
  const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  bind(s, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(s, reinterpret_cast<sockaddr*>(&address), &size);
  close(s);
  return ntohs(address.sin_port);
}

// Where etcd is: installed, or where scripts/setup.sh puts it. Empty where it is not.
inline std::string etcd_program() {
  for (const char* path : {"/usr/bin/etcd", "/usr/local/bin/etcd", OVERTAKE_SOURCE_DIR "/build/etcd/usr/bin/etcd"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return "";
}

class EtcdServer {
 public:
  EtcdServer() : port_(free_port()), peer_port_(free_port()) { start(); }
  ~EtcdServer() { end(); }
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string store(const std::string& job = "job") const { return "etcd://" + address() + "/" + job; }

  // With what it knew before it ended, too. Returns when it answers.
  void start() {
    const std::string client = "http://" + address(), peer = "http://127.0.0.1:" + std::to_string(peer_port_);
    std::vector<std::string> arguments = {etcd_program(),
                                          "--data-dir",
                                          (folder_.path() / "data").string(),
                                          "--listen-client-urls",
                                          client,
                                          "--advertise-client-urls",
                                          client,
                                          "--listen-peer-urls",
                                          peer,
                                          "--initial-advertise-peer-urls",
                                          peer,
                                          "--initial-cluster",
                                          "default=" + peer};
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    const std::string log = (folder_.path() / "log").string();
    std::fflush(nullptr);
    id_ = fork();
    if (id_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (freopen(log.c_str(), "a", stdout) == nullptr || freopen(log.c_str(), "a", stderr) == nullptr) _exit(127);
      execv(argv[0], argv.data());
      _exit(127);
    }
    open_store(store("is-there"), std::chrono::seconds(20))->get("anything");
  }
  void send_signal(int signal) const { kill(id_, signal); }
  void end() {
    if (id_ <= 0) return;
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
    id_ = -1;
  }

 private:
  const TemporaryFolder folder_;
  const int port_, peer_port_;
  pid_t id_ = -1;
};

// Answers each request in turn as it is told to: with a body, or, where that is empty, by closing the connection.
class FakeServer {
 public:
  struct Reply {
    int status;
    std::string body;
  };
  explicit FakeServer(const std::vector<Reply>& replies) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    listen(listener_, 8);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, replies] {
      for (const Reply& reply : replies) answer(reply);
    });
  }
  ~FakeServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  void answer(const Reply& reply) const {
    const int s = accept(listener_, nullptr, nullptr);
    if (s < 0) return;
    std::string request;
    char bytes[4096];
    while (!is_whole(request)) {
      const auto size = read(s, bytes, sizeof bytes);
      if (size <= 0) break;
      request.append(bytes, static_cast<std::size_t>(size));
    }
    const std::string text = fmt::format("HTTP/1.1 {} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                                         reply.status, reply.body.size(), reply.body);
    if (!reply.body.empty()) [[maybe_unused]]
      const auto sent = send(s, text.data(), text.size(), MSG_NOSIGNAL);
    close(s);
  }
  static bool is_whole(const std::string& request) {
    const std::size_t end = request.find("\r\n\r\n"), length = request.find("Content-Length: ");
    if (end == std::string::npos || length == std::string::npos) return false;
    return request.size() >= end + 4 + std::stoul(request.substr(length + 16));
  }
  int listener_, port_;
  std::thread thread_;
};

}  // namespace overtake
