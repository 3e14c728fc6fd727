#pragma once
// Checks around kernel launches. They throw std::runtime_error naming the kernel.

#include <cstdint>
#include <initializer_list>

namespace overtake::cuda {

// Throws if the launch just made was refused. Errors while it runs are raised where the stream is waited for.
void check_launch(const char* kernel);

// The number of blocks as a grid dimension; throws if it does not fit one.
unsigned grid_blocks(const char* kernel, std::int64_t blocks);

// Throws unless every pointer (null counts) is at a 16-byte boundary. Which path a kernel takes, and with it the order
// of its sums, follows from the shape alone; so an unaligned array is an error and not a reason for a slower path.
void require_aligned(const char* kernel, std::initializer_list<const void*> pointers);

}  // namespace overtake::cuda
