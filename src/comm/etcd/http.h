#pragma once
// Requests of JSON over HTTP, on a connection that is kept.

#include <curl/curl.h>

#include <chrono>
#include <memory>
#include <string>

namespace overtake {

struct HttpReply {
  long status = 0;   // 0: there was none
  std::string body;  // or why there was none
};

// For one thread at a time.
class Http {
 public:
  Http();
  HttpReply post(const std::string& url, const std::string& body, std::chrono::milliseconds time_out);

 private:
  struct Free {
    void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };
  std::unique_ptr<CURL, Free> curl_;
  std::unique_ptr<curl_slist, Free> headers_;
};

}  // namespace overtake
