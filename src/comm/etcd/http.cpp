#include "comm/etcd/http.h"

#include "base/error.h"

namespace overtake {
namespace {

constexpr std::size_t kLongestReply = 64 << 20;

// For curl: fewer bytes taken than given end the request.
std::size_t append(const char* bytes, std::size_t, std::size_t count, void* out) {
  std::string& text = *static_cast<std::string*>(out);
  if (text.size() + count > kLongestReply) return 0;
  text.append(bytes, count);
  return count;
}

}  // namespace

Http::Http() {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  curl_.reset(started == CURLE_OK ? curl_easy_init() : nullptr);
  OVERTAKE_CHECK(curl_ != nullptr, "libcurl does not start");
  headers_.reset(curl_slist_append(nullptr, "Content-Type: application/json"));
  CURL* c = curl_.get();
  curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers_.get());
  curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, append);
  curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(c, CURLOPT_NOPROXY, "*");  // a cluster's own addresses are not behind a proxy
}

HttpReply Http::post(const std::string& url, const std::string& body, std::chrono::milliseconds time_out) {
  CURL* c = curl_.get();
  HttpReply reply;
  char cause[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(c, CURLOPT_URL, url.c_str());
  curl_easy_setopt(c, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, static_cast<long>(time_out.count()));
  curl_easy_setopt(c, CURLOPT_WRITEDATA, &reply.body);
  curl_easy_setopt(c, CURLOPT_ERRORBUFFER, cause);
  const CURLcode code = curl_easy_perform(c);
  curl_easy_setopt(c, CURLOPT_ERRORBUFFER, nullptr);
  if (code != CURLE_OK) return {0, *cause != '\0' ? cause : curl_easy_strerror(code)};
  curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &reply.status);
  return reply;
}

}  // namespace overtake
