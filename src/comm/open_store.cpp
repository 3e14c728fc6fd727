#include <charconv>

#include "base/error.h"
#include "comm/etcd/etcd_store.h"
#include "comm/store.h"

namespace overtake {
namespace {

constexpr std::string_view kScheme = "etcd://";
constexpr std::string_view kDefaultPort = "2379";

// HOST:PORT of one of the addresses in `text`. Names of hosts and IPv4 as they are, IPv6 in brackets.
std::string address_of(std::string_view given, const std::string& text) {
  const std::size_t bracket = given.find(']');
  const std::size_t colon = given.find(':', bracket == std::string_view::npos ? 0 : bracket);
  const std::string_view host = given.substr(0, colon);
  const std::string_view port = colon == std::string_view::npos ? kDefaultPort : given.substr(colon + 1);
  int number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool is_port = error == std::errc() && end == port.data() + port.size() && number >= 1 && number <= 65535;
  if (host.empty() || host.find_first_of("@?# \\") != std::string_view::npos || !is_port) {
    fail_user("{}: '{}' is no address of etcd; name it as etcd://HOST:PORT, or several with commas between them", text,
              given);
  }
  return fmt::format("{}:{}", host, number);
}

}  // namespace

std::unique_ptr<Store> open_store(const std::string& text, std::chrono::milliseconds patience) {
  if (!text.starts_with(kScheme)) {
    if (text.empty()) fail_user("store '': no name; give a folder that all ranks see, or etcd://HOST:PORT");
    if (text.find("://") != std::string::npos) {
      fail_user("{}: no store of a kind that is known; give a folder that all ranks see, or etcd://HOST:PORT", text);
    }
    return std::make_unique<FileStore>(text);
  }
  std::string_view rest = std::string_view(text).substr(kScheme.size());
  EtcdOptions options;
  options.patience = patience;
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    options.name = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
  }
  while (true) {
    const std::size_t comma = rest.find(',');
    options.addresses.push_back(address_of(rest.substr(0, comma), text));
    if (comma == std::string_view::npos) return make_etcd_store(options);
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace overtake
