#pragma once
// A pass is a pure function State -> State (Graph -> Graph, Plan -> Plan, or Program -> Program) with a name, something
// it needs to hold before, and something it grants to hold after.

#include <functional>
#include <string>

namespace overtake {

template <class State>
struct Pass {
  std::string name;
  std::function<State(State)> run;
  std::function<bool(const State&)> needs = nullptr;   // null: nothing
  std::function<bool(const State&)> grants = nullptr;  // null: nothing beyond what must hold for any state
};

}  // namespace overtake
