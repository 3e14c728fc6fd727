#pragma once
// When `auto` takes more than one lane, on one device and on each of several.

namespace overtake {

// A step out of order takes at most so much of the time in order, by what is predicted and by what is measured.
inline constexpr double kWorthwhileTime = 0.99;
// Of the rounds of trials in which both were run, so many must be won: less may be chance.
inline constexpr int kTrialRounds = 5, kRoundsToWin = 4;
// So much of the memory in order, where no memory cap is given.
inline constexpr double kMemoryByDefault = 1.10;

}  // namespace overtake
