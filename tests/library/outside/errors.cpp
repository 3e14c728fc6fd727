// Errors and the version of the library come through to a program outside.

#include <overtake/overtake.h>

#include <string>

int main() {
  if (std::string(overtake::version()) != overtake::kVersion) return 1;
  try {
    overtake::build_model("no-such-network", {});
  } catch (const overtake::UserError& e) {
    return e.remedy().empty() ? 1 : 0;
  }
  return 1;
}
