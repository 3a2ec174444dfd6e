// Runs a grid of GPU threads on one processor thread.
//
// Every GPU thread is a fiber. A fiber runs until it meets others: at a simd operation its simdgroup, at a barrier its
// threadgroup. Threadgroups run one after another. A meeting that cannot come about, since some threads went another
// way, ends the run with the two places. The thread order is chosen by the caller, so that a kernel that depends on it
// gives different results under different orders. Buffers end at pages that nobody may touch.
#if defined(__APPLE__)
#define _XOPEN_SOURCE 700
#define _DARWIN_C_SOURCE
#endif

#include "machine.h"

#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__linux__)
#define EMU_OWN_SWITCH
#else
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
#if defined(EMU_OWN_SWITCH)
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

struct Buffer {
  unsigned char* start;
  size_t size, reserved;
  void* base;
};

Fiber fibers[MAX_THREADS];
Fiber* current;
Run run;
unsigned char* stacks;
unsigned random_state;

constexpr size_t GUARD = size_t(256) << 20, FENCE_BEFORE = 64;
constexpr unsigned MAX_BUFFERS = 64;
Buffer buffers_held[MAX_BUFFERS];
sigjmp_buf way_out;
alignas(16) unsigned char signal_stack[64 * 1024];

alignas(64) unsigned char tile_memory[TILE_LIMIT + MAX_TILES * FENCE];
Tile tiles[MAX_TILES];
unsigned tile_count, tile_bytes, tile_end;

#if defined(EMU_OWN_SWITCH)
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
#if defined(EMU_OWN_SWITCH)
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

// Lets a simdgroup whose lanes all stand at one simd operation go on. False where none stands at one, or on failure.
bool release_simdgroup(unsigned base, unsigned end) {
  unsigned waiting = base;
  while (waiting < end && fibers[waiting].wait != SIMD) waiting++;
  if (waiting == end) return false;
  for (unsigned i = base; i < end; i++) {
    if (!same_place(fibers[i], fibers[waiting])) {
      fail_meeting("divergent simd operation", fibers[waiting], fibers[i]);
      return false;
    }
  }
  for (unsigned i = base; i < end; i++) fibers[i].wait = RUNNING;
  return true;
}

// Lets a threadgroup whose threads all stand at one barrier go on. False where all are done, or on failure.
bool release_barrier() {
  unsigned waiting = 0;
  while (waiting < run.count && fibers[waiting].wait != BARRIER) waiting++;
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

// Leaves a thread that touched what is not its own. `buffer N` names a buffer by its place in the launch.
void leave(int number, siginfo_t* info, void*) {
  const unsigned char* at = static_cast<const unsigned char*>(info->si_addr);
  if (number == SIGFPE) {
    snprintf(run.message, run.message_size, "a division by zero");
    siglongjmp(way_out, 1);
  }
  snprintf(run.message, run.message_size, "an access to no buffer at all");
  for (const Buffer& held : buffers_held) {
    if (!held.start || at < static_cast<unsigned char*>(held.base)) continue;
    if (at >= static_cast<unsigned char*>(held.base) + held.reserved) continue;
    int place = -1;
    for (int i = 0; run.buffers[i] && place < 0; i++) {
      if (run.buffers[i] == held.start) place = i;
    }
    snprintf(run.message, run.message_size, "an access %s of buffer %d",
             at < held.start ? "before the start" : "past the end", place);
  }
  siglongjmp(way_out, 1);
}

unsigned draw(unsigned below) {
  random_state = random_state * 1664525u + 1013904223u;
  return (random_state >> 8) % below;
}

// Runs every lane of a simdgroup to its next meeting. False when the simdgroup then waits for others or has ended.
bool advance(unsigned simdgroup) {
  unsigned base = simdgroup * LANES, end = base + LANES < run.count ? base + LANES : run.count;
  unsigned queue[LANES];
  for (unsigned i = 0; i < end - base; i++) queue[i] = run.order.threads == 1 ? end - 1 - i : base + i;
  if (run.order.threads == 2) {
    for (unsigned i = end - base - 1; i > 0; i--) {
      unsigned j = draw(i + 1), kept = queue[i];
      queue[i] = queue[j];
      queue[j] = kept;
    }
  }
  for (unsigned i = 0; i < end - base && !run.failed; i++) {
    if (fibers[queue[i]].wait == RUNNING) to_fiber(fibers[queue[i]]);
  }
  return !run.failed && release_simdgroup(base, end);
}

// Runs all threads to their next barrier or end: one simdgroup after another, each as far as it comes, or in turns
// drawn anew. Either way a thread that needs a barrier and has none meets memory too early or too late.
void run_to_barrier() {
  unsigned simdgroups = (run.count + LANES - 1) / LANES, going[MAX_THREADS / LANES];
  for (unsigned i = 0; i < simdgroups; i++) going[i] = run.order.threads == 1 ? simdgroups - 1 - i : i;
  while (simdgroups && !run.failed) {
    unsigned turn = run.order.threads == 2 ? draw(simdgroups) : 0;
    if (advance(going[turn])) continue;
    simdgroups--;
    for (unsigned i = turn; i < simdgroups; i++) going[i] = going[i + 1];
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
  do run_to_barrier();
  while (!run.failed && release_barrier());
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

// Memory for `size` bytes: it ends where nothing may be touched, with 64 bytes or more before it.
extern "C" void* emu_buffer(size_t size) {
  using namespace emu;
  size_t page = size_t(sysconf(_SC_PAGESIZE)), open = (size + FENCE_BEFORE + page - 1) / page * page;
  for (Buffer& held : buffers_held) {
    if (held.start) continue;
    void* base = mmap(nullptr, open + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    unsigned char* start = static_cast<unsigned char*>(base) + GUARD;
    mprotect(start, open, PROT_READ | PROT_WRITE);
    held = {start + open - size, size, open + 2 * GUARD, base};
    return held.start;
  }
  return nullptr;
}

extern "C" void emu_release(void* start) {
  for (emu::Buffer& held : emu::buffers_held) {
    if (held.start != start) continue;
    munmap(held.base, held.reserved);
    held.start = nullptr;
  }
}

// Runs `entry` for every thread of a grid; `buffers` ends with a null. Returns 0, or 1 with one line in `message`.
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
  struct sigaction ours{}, before[3];
  const int caught[3] = {SIGSEGV, SIGBUS, SIGFPE};
  stack_t stack{}, stack_before;
  stack.ss_sp = signal_stack;
  stack.ss_size = sizeof signal_stack;
  sigaltstack(&stack, &stack_before);
  ours.sa_sigaction = &leave;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int i = 0; i < 3; i++) sigaction(caught[i], &ours, &before[i]);
  if (sigsetjmp(way_out, 1)) run.failed = true;
  for (unsigned z = 0; z < groups[2] && !run.failed; z++) {
    for (unsigned y = 0; y < groups[1] && !run.failed; y++) {
      for (unsigned x = 0; x < groups[0] && !run.failed; x++) {
        unsigned at[3] = {x, y, z};
        run_group(grid, group, groups, at);
      }
    }
  }
  for (int i = 0; i < 3; i++) sigaction(caught[i], &before[i], nullptr);
  sigaltstack(&stack_before, nullptr);
  return run.failed ? 1 : 0;
}
