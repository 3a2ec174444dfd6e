// Runs a grid of GPU threads on one processor thread.
//
// Every GPU thread is a fiber. A fiber runs until it meets others: at a simd operation its simdgroup, at a barrier its
// threadgroup. Threadgroups run one after another. A meeting that cannot come about, since some threads went another
// way, ends the run with the two places. The thread order is chosen by the caller, so that a kernel that depends on it
// gives different results under different orders.
#include "machine.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emu {
namespace {

constexpr unsigned MAX_THREADS = 1024, LANES = 32, VALUE = 32, STACK = 256 * 1024;
constexpr unsigned TILE_LIMIT = 32 * 1024, MAX_TILES = 32, FENCE = 64;
constexpr unsigned char POISON = 0xFF;  // all ones: NaN in every floating format

enum Wait { RUNNING, SIMD, BARRIER, DONE };

struct Fiber {
  Place place;
  Wait wait;
  const char* operation;
  Where at;
  unsigned parity;
  alignas(16) unsigned char value[2][VALUE];
#if defined(__x86_64__)
  void* stack_pointer;
#else
  ucontext_t context;
#endif
};

struct Tile {
  unsigned key, start, bytes;
};

struct Run {
  void (*entry)(void**);
  void** buffers;
  Order order;
  unsigned count;
  bool failed;
  char* message;
  unsigned message_size;
};

Fiber fibers[MAX_THREADS];
Fiber* current;
Run run;
unsigned char* stacks;
unsigned random_state;

alignas(64) unsigned char tile_memory[TILE_LIMIT + MAX_TILES * FENCE];
Tile tiles[MAX_TILES];
unsigned tile_count, tile_bytes, tile_end;

#if defined(__x86_64__)
void* scheduler_stack;
extern "C" void emu_switch(void** save, void* load);
// Saves the registers that a call keeps, changes stacks, and returns on the other one.
asm(R"(
.text
.globl emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
void to_scheduler() { emu_switch(&current->stack_pointer, scheduler_stack); }
void to_fiber(Fiber& fiber) {
  current = &fiber;
  emu_switch(&scheduler_stack, fiber.stack_pointer);
}
#else
ucontext_t scheduler;
void to_scheduler() { swapcontext(&current->context, &scheduler); }
void to_fiber(Fiber& fiber) {
  current = &fiber;
  swapcontext(&scheduler, &fiber.context);
}
#endif

void start() {
  run.entry(run.buffers);
  current->wait = DONE;
  to_scheduler();
  abort();
}

void prepare(Fiber& fiber, unsigned index) {
  unsigned char* stack = stacks + size_t(index) * STACK;
  fiber.wait = RUNNING;
  fiber.parity = 0;
#if defined(__x86_64__)
  void** top = reinterpret_cast<void**>(stack + STACK - 64 + 8);  // as a call leaves it: 8 above 16
  top[0] = nullptr;  // the return address `start` never uses
  top[-1] = reinterpret_cast<void*>(&start);
  for (int i = 2; i <= 7; i++) top[-i] = nullptr;
  fiber.stack_pointer = top - 7;
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack;
  fiber.context.uc_stack.ss_size = STACK;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, &start, 0);
#endif
}

void describe(char* text, unsigned size, const Fiber& fiber) {
  if (fiber.wait == DONE) {
    snprintf(text, size, "thread %u has finished", fiber.place.index);
  } else {
    snprintf(text, size, "thread %u is at %s in line %u", fiber.place.index, fiber.operation, unsigned(fiber.at.line()));
  }
}

void fail_meeting(const char* what, const Fiber& one, const Fiber& other) {
  char first[160], second[160];
  describe(first, sizeof first, one);
  describe(second, sizeof second, other);
  snprintf(run.message, run.message_size, "%s: %s, %s", what, first, second);
  run.failed = true;
}

bool same_place(const Fiber& a, const Fiber& b) {
  return a.wait == b.wait && a.at.line() == b.at.line() && a.at.column() == b.at.column() &&
         strcmp(a.operation, b.operation) == 0;
}

void check_fences() {
  for (unsigned i = 0; i < tile_count && !run.failed; i++) {
    for (unsigned b = 0; b < FENCE; b++) {
      if (tile_memory[tiles[i].start + tiles[i].bytes + b] == 0x5C) continue;
      snprintf(run.message, run.message_size, "a write past the end of a threadgroup array of %u bytes", tiles[i].bytes);
      run.failed = true;
      break;
    }
  }
}

// Releases whoever has met. False when nobody can go on: everyone is done, or the run has failed.
bool release() {
  bool any = false;
  for (unsigned base = 0; base < run.count; base += LANES) {
    unsigned end = base + LANES < run.count ? base + LANES : run.count, waiting = end;
    for (unsigned i = base; i < end && waiting == end; i++) {
      if (fibers[i].wait == SIMD) waiting = i;
    }
    if (waiting == end) continue;
    for (unsigned i = base; i < end; i++) {
      if (!same_place(fibers[i], fibers[waiting])) {
        fail_meeting("divergent simd operation", fibers[waiting], fibers[i]);
        return false;
      }
    }
    for (unsigned i = base; i < end; i++) fibers[i].wait = RUNNING;
    any = true;
  }
  if (any) return true;
  unsigned waiting = run.count;
  for (unsigned i = 0; i < run.count && waiting == run.count; i++) {
    if (fibers[i].wait == BARRIER) waiting = i;
  }
  if (waiting == run.count) return false;
  for (unsigned i = 0; i < run.count; i++) {
    if (!same_place(fibers[i], fibers[waiting])) {
      fail_meeting("divergent barrier", fibers[waiting], fibers[i]);
      return false;
    }
  }
  for (unsigned i = 0; i < run.count; i++) fibers[i].wait = RUNNING;
  return true;
}

unsigned draw(unsigned below) {
  random_state = random_state * 1664525u + 1013904223u;
  return (random_state >> 8) % below;
}

void step(unsigned* queue) {
  for (unsigned i = 0; i < run.count; i++) queue[i] = run.order.threads == 1 ? run.count - 1 - i : i;
  if (run.order.threads == 2) {
    for (unsigned i = run.count - 1; i > 0; i--) {
      unsigned j = draw(i + 1), kept = queue[i];
      queue[i] = queue[j];
      queue[j] = kept;
    }
  }
  for (unsigned i = 0; i < run.count && !run.failed; i++) {
    if (fibers[queue[i]].wait == RUNNING) to_fiber(fibers[queue[i]]);
  }
}

void run_group(const unsigned grid[3], const unsigned full[3], const unsigned groups[3], const unsigned group[3]) {
  unsigned size[3];
  for (int a = 0; a < 3; a++) {
    unsigned left = grid[a] - group[a] * full[a];
    size[a] = left < full[a] ? left : full[a];
  }
  run.count = size[0] * size[1] * size[2];
  tile_count = tile_bytes = tile_end = 0;
  for (unsigned i = 0; i < run.count; i++) {
    Place& at = fibers[i].place;
    unsigned local[3] = {i % size[0], i / size[0] % size[1], i / (size[0] * size[1])};
    for (int a = 0; a < 3; a++) {
      at.local[a] = local[a];
      at.group[a] = group[a];
      at.grid[a] = group[a] * full[a] + local[a];
      at.size[a] = size[a];
      at.full[a] = full[a];
      at.threads[a] = grid[a];
      at.groups[a] = groups[a];
    }
    at.index = i;
    at.lane = i % LANES;
    at.simdgroup = i / LANES;
    at.simdgroups = (run.count + LANES - 1) / LANES;
    prepare(fibers[i], i);
  }
  unsigned queue[MAX_THREADS];
  do step(queue);
  while (!run.failed && release());
  if (!run.failed) check_fences();
}

}  // namespace

const Place& place() { return current->place; }
const Order& order() { return run.order; }

unsigned meet(const void* value, unsigned size, void* all, const char* operation, Where at) {
  Fiber& me = *current;
  if (size > VALUE) fail("a simd operation on more than 32 bytes", at);
  // Two slots in turn: a lane that is already at the next operation does not overwrite what slower lanes still read.
  unsigned parity = me.parity;
  me.parity ^= 1;
  memcpy(me.value[parity], value, size);
  me.wait = SIMD;
  me.operation = operation;
  me.at = at;
  to_scheduler();
  unsigned base = me.place.index / LANES * LANES;
  unsigned lanes = run.count - base < LANES ? run.count - base : LANES;
  for (unsigned i = 0; i < lanes; i++) {
    memcpy(static_cast<unsigned char*>(all) + i * size, fibers[base + i].value[parity], size);
  }
  return lanes;
}

void barrier(Where at) {
  current->wait = BARRIER;
  current->operation = "threadgroup_barrier";
  current->at = at;
  to_scheduler();
}

void* tile(unsigned key, unsigned bytes) {
  for (unsigned i = 0; i < tile_count; i++) {
    if (tiles[i].key == key) return tile_memory + tiles[i].start;
  }
  tile_bytes += (bytes + 15) / 16 * 16;
  if (tile_bytes > TILE_LIMIT || tile_count == MAX_TILES) {
    char text[120];
    snprintf(text, sizeof text, "%u bytes of threadgroup memory are asked for, the limit is %u", tile_bytes, TILE_LIMIT);
    fail(text, Where::current());
  }
  Tile made{key, tile_end, bytes};
  memset(tile_memory + made.start, POISON, bytes);
  memset(tile_memory + made.start + bytes, 0x5C, FENCE);
  tile_end = (made.start + bytes + FENCE + 15) / 16 * 16;
  tiles[tile_count++] = made;
  return tile_memory + made.start;
}

void fail(const char* message, Where at) {
  snprintf(run.message, run.message_size, "%s", message);
  run.failed = true;
  to_scheduler();
  abort();
}

}  // namespace emu

// Runs `entry` for every thread of a grid. Returns 0, or 1 with one line in `message`.
extern "C" int emu_run(void (*entry)(void**), void** buffers, const unsigned* grid, const unsigned* group,
                       const emu::Order* order, char* message, unsigned message_size) {
  using namespace emu;
  if (!stacks) {
    void* made = mmap(nullptr, size_t(MAX_THREADS) * STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) {
      snprintf(message, message_size, "no memory for the threads' stacks");
      return 1;
    }
    stacks = static_cast<unsigned char*>(made);
  }
  run = {entry, buffers, *order, 0, false, message, message_size};
  random_state = order->seed;
  unsigned groups[3];
  for (int a = 0; a < 3; a++) groups[a] = (grid[a] + group[a] - 1) / group[a];
  for (unsigned z = 0; z < groups[2] && !run.failed; z++) {
    for (unsigned y = 0; y < groups[1] && !run.failed; y++) {
      for (unsigned x = 0; x < groups[0] && !run.failed; x++) {
        unsigned at[3] = {x, y, z};
        run_group(grid, group, groups, at);
      }
    }
  }
  return run.failed ? 1 : 0;
}
