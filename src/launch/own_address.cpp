#include "launch/own_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

namespace overtake {
namespace {

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  }
  return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
}

// To connect a UDP socket is to ask the kernel for a route.
std::optional<std::string> own_end(const addrinfo& to) {
  const int s = socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (s < 0) return std::nullopt;
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  const bool is_known = connect(s, to.ai_addr, to.ai_addrlen) == 0 && getsockname(s, address, &size) == 0;
  close(s);
  char text[NI_MAXHOST];
  if (!is_known || is_loopback(own) || getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
    return std::nullopt;
  }
  return text;
}

}  // namespace

std::optional<std::string> own_address_towards(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &wanted, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, freeaddrinfo);
  for (const addrinfo* to = found; to != nullptr; to = to->ai_next) {
    if (const auto own = own_end(*to)) return own;
  }
  return std::nullopt;
}

}  // namespace overtake
