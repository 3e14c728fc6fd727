#include "comm/roll_call.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/json.h"

namespace overtake {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

// The number of what cards and messages mean; a rank of another build is told so instead of misunderstood.
constexpr int kProtocol = 2;

std::string this_process() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return fmt::format("process {} on {}", getpid(), host);
}

// Any bytes as text, for JSON.
std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

std::string from_hex(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    out += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return out;
}

std::string card_name(int rank) { return fmt::format("rank-{}", rank); }

struct Card {
  int protocol = 0, size = 0;
  std::string process, identity, message;
};

std::string written(const Card& card) {
  return Json{{"protocol", card.protocol},
              {"size", card.size},
              {"process", card.process},
              {"identity", card.identity},
              {"message", hex(card.message)}}
      .dump();
}

// For those who do not know it yet. What went wrong before is worth more than that the store is gone, too.
void tell_all(Store& store, const std::string& name, const std::string& text) {
  try {
    store.put(name, text);
  } catch (const UserError&) {
  }
}

// Those who already wait fail with the same words.
[[noreturn]] void fail_all(Store& store, const std::string& text) {
  tell_all(store, "fault", text);
  throw UserError(text);
}

Card read_card(Store& store, int rank, const std::string& text) {
  try {
    const Json card = parse_json(text);
    return {card.at("protocol"), card.at("size"), card.at("process"), card.at("identity"),
            from_hex(card.at("message"))};
  } catch (const std::exception& error) {
    fail_all(store, fmt::format("rank {}: its card cannot be read: {}; start the job anew with another id", rank,
                                error.what()));
  }
}

// Of two texts, the lines of the first that the second does not have, side by side.
std::string lines_not_in(const std::string& text, const std::string& other) {
  std::string lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (("\n" + other + "\n").find("\n" + line + "\n") == std::string::npos)
      lines += (lines.empty() ? "" : ", ") + line;
  return lines;
}

void check_card(Store& store, const RollCall& mine, int rank, const Card& card) {
  const auto compare = [&](const char* what, const auto& ours, const auto& theirs, const char* advice) {
    if (ours == theirs) return;
    fail_all(store, fmt::format("rank {}: another {} than rank {}: {}, not {}; {}", rank, what, mine.rank, theirs, ours,
                                advice));
  };
  compare("version of Overtake", kProtocol, card.protocol, "run the same build everywhere");
  compare("number of ranks", mine.size, card.size, "start all ranks with the same");
  compare("job", lines_not_in(mine.identity, card.identity), lines_not_in(card.identity, mine.identity),
          "start all ranks with the same model and settings");
}

}  // namespace

std::vector<std::string> call_roll(Store& store, const RollCall& mine) {
  if (mine.size < 1 || mine.rank < 0 || mine.rank >= mine.size) {
    fail_user("rank {}: there are {} ranks: the number must be 0 to {}; give each process its own", mine.rank,
              mine.size, mine.size - 1);
  }
  const Card own{kProtocol, mine.size, this_process(), mine.identity, mine.message};
  if (!store.put(card_name(mine.rank), written(own))) {
    const Card other = read_card(store, mine.rank, store.get(card_name(mine.rank)).value_or(""));
    fail_all(store, fmt::format("rank {}: two processes have this rank: {} and {}; give each process its own, and each "
                                "run its own job id",
                                mine.rank, other.process, own.process));
  }
  const auto deadline = std::chrono::steady_clock::now() + mine.time_out;
  std::vector<std::string> messages;
  milliseconds pause{1};
  while (true) {
    if (const auto fault = store.get("fault")) throw UserError(*fault);
    const int next = static_cast<int>(messages.size());
    // A rank beyond the last is there where others count more ranks.
    if (const auto beyond = store.get(card_name(mine.size))) {
      check_card(store, mine, mine.size, read_card(store, mine.size, *beyond));
    }
    if (next == mine.size) return messages;
    if (const auto text = store.get(card_name(next))) {
      const Card card = read_card(store, next, *text);
      check_card(store, mine, next, card);
      messages.push_back(card.message);
    } else if (std::chrono::steady_clock::now() > deadline) {
      throw CommError(next, fmt::format("rank {}: it did not come within {:g} s; {} ranks are to meet in this job",
                                        next, std::chrono::duration<double>(mine.time_out).count(), mine.size));
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(50));
    }
  }
}

CommError first_of_all(Store& store, const CommError& error) try {
  store.put("lost", Json{{"rank", error.rank()}, {"text", error.what()}}.dump());
  const Json first = parse_json_or_discard(store.get("lost").value_or("{}"));
  if (!first.is_object()) return error;
  return {first.value("rank", error.rank()), first.value("text", error.what())};
} catch (const UserError&) {  // the store is gone, too
  return error;
}

}  // namespace overtake
