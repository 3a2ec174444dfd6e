// What a kernel body needs of the machine that runs it: one fiber for each GPU thread, meeting points, tiles of
// threadgroup memory. Implemented in machine.cpp, which is compiled once; kernels are compiled against this header.
#pragma once
#include <cstdint>
#include <source_location>

namespace emu {

// How this run settles what Metal leaves open. No kernel may depend on any of it.
struct Order {
  int sum;      // simd reductions: 0 butterfly, 1 lane 0 to 31, 2 lane 31 to 0
  int chain;    // 8x8 products: 0 k ascending, 1 k descending, 2 pairwise
  int threads;  // which thread runs first: 0 lowest, 1 highest, 2 drawn anew at every turn
  unsigned seed;
};

// Where a thread stands; sizes of a threadgroup at the grid's edge are its own, `full` is what was asked for.
struct Place {
  unsigned grid[3], local[3], group[3];
  unsigned size[3], full[3], threads[3], groups[3];
  unsigned index, lane, simdgroup, simdgroups;
};

using Where = std::source_location;

const Place& place();
const Order& order();

// Hands `value` to the lanes of this thread's simdgroup, waits for all of them, and collects theirs in `all`.
// Returns how many lanes there are. `size` is at most 32 bytes.
unsigned meet(const void* value, unsigned size, void* all, const char* operation, Where at);

// Waits for every thread of the threadgroup.
void barrier(Where at);

// Memory shared by the threadgroup, the same for every thread that asks with the same key; poisoned when it is new.
void* tile(unsigned key, unsigned bytes);

// Ends the run with this message.
[[noreturn]] void fail(const char* message, Where at);

}  // namespace emu
