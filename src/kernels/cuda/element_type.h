#pragma once

#include <cstddef>
#include <cstdint>

namespace overtake::cuda {

// What an array given as void* holds.
enum class ElementType : std::uint8_t { f32, bf16 };

constexpr std::size_t bytes_of(ElementType type) { return type == ElementType::bf16 ? 2 : 4; }
constexpr const char* name_of(ElementType type) { return type == ElementType::bf16 ? "bf16" : "f32"; }

}  // namespace overtake::cuda
