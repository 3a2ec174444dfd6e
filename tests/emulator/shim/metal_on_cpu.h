// The Metal language as g++ reads it: qualifiers, types, functions, simd operations and 8x8 matrices.
// What Metal leaves open (the order of a reduction, of an 8x8 product, of threads) is taken from emu::order().
#pragma once
#include "machine.h"
#include "types.h"

// Address spaces mean nothing on a processor; the linter checks that they are written.
#define device
#define constant
#define thread
#define threadgroup
#define METAL_FUNC inline
// A threadgroup array, rewritten from its declaration: the same memory for every thread of the threadgroup.
#define EMU_TILE(T, NAME, DIMS)      \
  typedef T NAME##_tile DIMS;        \
  NAME##_tile& NAME = *static_cast<NAME##_tile*>(emu::tile(__COUNTER__, sizeof(NAME##_tile)))

namespace metal {

namespace mem_flags {
enum { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
}
enum memory_order { memory_order_relaxed };

template <class To, class From>
inline To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// Numbers.
template <class T>
inline T min(T a, T b) { return b < a ? b : a; }
template <class T>
inline T max(T a, T b) { return a < b ? b : a; }
template <class T>
inline T clamp(T value, T low, T high) { return min(max(value, low), high); }
template <class T>
inline T select(T otherwise, T chosen, bool condition) { return condition ? chosen : otherwise; }
template <class T>
inline T abs(T value) { return value < T(0) ? T(-value) : value; }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline bool isnan(float value) { return value != value; }
inline bool isinf(float value) { return __builtin_isinf(value); }
inline float fabs(float value) { return __builtin_fabsf(value); }
inline float sign(float value) { return value > 0 ? 1.0f : value < 0 ? -1.0f : 0.0f; }
inline uint popcount(uint value) { return __builtin_popcount(value); }
inline uint clz(uint value) { return value ? __builtin_clz(value) : 32; }
inline uint ctz(uint value) { return value ? __builtin_ctz(value) : 32; }
#define EMU_FUNCTIONS                                                      \
  inline float exp(float x) { return __builtin_expf(x); }                  \
  inline float exp2(float x) { return __builtin_exp2f(x); }                \
  inline float log(float x) { return __builtin_logf(x); }                  \
  inline float log2(float x) { return __builtin_log2f(x); }                \
  inline float sqrt(float x) { return __builtin_sqrtf(x); }                \
  inline float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }        \
  inline float tanh(float x) { return __builtin_tanhf(x); }                \
  inline float sin(float x) { return __builtin_sinf(x); }                  \
  inline float cos(float x) { return __builtin_cosf(x); }                  \
  inline float pow(float x, float y) { return __builtin_powf(x, y); }      \
  inline float floor(float x) { return __builtin_floorf(x); }              \
  inline float ceil(float x) { return __builtin_ceilf(x); }                \
  inline float rint(float x) { return __builtin_rintf(x); }                \
  inline float round(float x) { return __builtin_roundf(x); }
EMU_FUNCTIONS
namespace precise {
EMU_FUNCTIONS
}
namespace fast {
EMU_FUNCTIONS
}
#undef EMU_FUNCTIONS
template <class T, int N>
inline T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a[0] * b[0];
  for (int i = 1; i < N; i++) sum = sum + a[i] * b[i];
  return sum;
}

// Atomics: fibers change places only where they meet, so plain arithmetic is atomic.
template <class T>
struct atomic {
  T value;
};
using atomic_uint = atomic<uint>;
using atomic_int = atomic<int>;
template <class T>
inline T atomic_fetch_add_explicit(atomic<T>* at, std::type_identity_t<T> by, memory_order) {
  T before = at->value;
  at->value = before + by;
  return before;
}
template <class T>
inline T atomic_load_explicit(const atomic<T>* at, memory_order) { return at->value; }
template <class T>
inline void atomic_store_explicit(atomic<T>* at, std::type_identity_t<T> value, memory_order) { at->value = value; }

// Meetings.
#define EMU_AT emu::Where at = emu::Where::current()
inline void threadgroup_barrier(int, EMU_AT) { emu::barrier(at); }
inline void simdgroup_barrier(int, EMU_AT) {
  char all[32];
  emu::meet("", 1, all, "simdgroup_barrier", at);
}

template <class T>
struct Lanes {
  T value[32];
  uint count;
  Lanes(const T& mine, const char* operation, emu::Where at) { count = emu::meet(&mine, sizeof(T), value, operation, at); }
  T from(int lane, const char* operation, emu::Where at) const {
    if (lane < 0 || lane >= int(count)) emu::fail("a shuffle reads a lane that does not exist", at);
    return value[lane];
  }
};

template <class T, class F>
inline T reduce(const Lanes<T>& lanes, F join) {
  T work[32];
  uint count = lanes.count;
  for (uint i = 0; i < count; i++) work[i] = lanes.value[i];
  if (emu::order().sum == 0) {
    for (uint half = 16; half; half /= 2) {
      for (uint i = 0; i < half && i + half < count; i++) work[i] = join(work[i], work[i + half]);
      count = count < half ? count : half;
    }
    return work[0];
  }
  bool reversed = emu::order().sum == 2;
  T sum = work[reversed ? count - 1 : 0];
  for (uint i = 1; i < count; i++) sum = join(sum, work[reversed ? count - 1 - i : i]);
  return sum;
}

#define EMU_REDUCE(NAME, EXPRESSION)                            \
  template <class T>                                            \
  inline T NAME(T mine, EMU_AT) {                               \
    return reduce(Lanes<T>(mine, #NAME, at), [](T a, T b) { return T(EXPRESSION); }); \
  }
EMU_REDUCE(simd_sum, a + b)
EMU_REDUCE(simd_product, a* b)
EMU_REDUCE(simd_max, a < b ? b : a)
EMU_REDUCE(simd_min, b < a ? b : a)
EMU_REDUCE(simd_and, a& b)
EMU_REDUCE(simd_or, a | b)
EMU_REDUCE(simd_xor, a ^ b)
#undef EMU_REDUCE

template <class T>
inline T simd_shuffle(T mine, ushort lane, EMU_AT) {
  return Lanes<T>(mine, "simd_shuffle", at).from(lane, "simd_shuffle", at);
}
template <class T>
inline T simd_broadcast(T mine, ushort lane, EMU_AT) {
  return Lanes<T>(mine, "simd_broadcast", at).from(lane, "simd_broadcast", at);
}
template <class T>
inline T simd_broadcast_first(T mine, EMU_AT) { return Lanes<T>(mine, "simd_broadcast_first", at).value[0]; }
template <class T>
inline T simd_shuffle_xor(T mine, ushort mask, EMU_AT) {
  return Lanes<T>(mine, "simd_shuffle_xor", at).from(emu::place().lane ^ mask, "simd_shuffle_xor", at);
}
// Lanes with nobody that far away keep their own value.
template <class T>
inline T simd_shuffle_down(T mine, ushort by, EMU_AT) {
  Lanes<T> lanes(mine, "simd_shuffle_down", at);
  uint lane = emu::place().lane + by;
  return lane < lanes.count ? lanes.value[lane] : mine;
}
template <class T>
inline T simd_shuffle_up(T mine, ushort by, EMU_AT) {
  Lanes<T> lanes(mine, "simd_shuffle_up", at);
  uint lane = emu::place().lane;
  return lane >= by ? lanes.value[lane - by] : mine;
}
template <class T>
inline T simd_prefix_exclusive_sum(T mine, EMU_AT) {
  Lanes<T> lanes(mine, "simd_prefix_exclusive_sum", at);
  T sum = T(0);
  for (uint i = 0; i < emu::place().lane; i++) sum = sum + lanes.value[i];
  return sum;
}
template <class T>
inline T simd_prefix_inclusive_sum(T mine, EMU_AT) {
  Lanes<T> lanes(mine, "simd_prefix_inclusive_sum", at);
  T sum = lanes.value[0];
  for (uint i = 1; i <= emu::place().lane; i++) sum = sum + lanes.value[i];
  return sum;
}
struct simd_vote {
  ulong bits;
  explicit operator ulong() const { return bits; }
};
inline simd_vote simd_ballot(bool mine, EMU_AT) {
  Lanes<bool> lanes(mine, "simd_ballot", at);
  simd_vote vote{0};
  for (uint i = 0; i < lanes.count; i++) vote.bits |= ulong(lanes.value[i]) << i;
  return vote;
}
inline bool simd_any(bool mine, EMU_AT) {
  return reduce(Lanes<bool>(mine, "simd_any", at), [](bool a, bool b) { return a || b; });
}
inline bool simd_all(bool mine, EMU_AT) {
  return reduce(Lanes<bool>(mine, "simd_all", at), [](bool a, bool b) { return a && b; });
}

// 8x8 matrices, two neighbours of one row in each lane:
//
//     lane    column 0 1   2 3   4 5   6 7
//     row 0          0      1     8     9
//     row 1          2      3    10    11
//     row 2          4      5    12    13
//     row 3          6      7    14    15
//     row 4         16     17    24    25      and so on to row 7
inline uint matrix_row(uint lane) { return (lane / 4 & 4) + lane / 2 % 4; }
inline uint matrix_column(uint lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }

template <class T, int R = 8, int C = 8>
struct simdgroup_matrix {
  static_assert(R == 8 && C == 8, "matrices are 8x8");
  vec<T, 2> elements;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T all) : elements(all) {}
  vec<T, 2>& thread_elements() { return elements; }
};
using simdgroup_float8x8 = simdgroup_matrix<float>;
using simdgroup_half8x8 = simdgroup_matrix<half>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat>;

template <class T, int R, int C>
inline simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T all) { return simdgroup_matrix<T, R, C>(all); }

template <class T>
inline void whole_matrix(const simdgroup_matrix<T>& part, float (&whole)[8][8], const char* operation, emu::Where at) {
  Lanes<vec<T, 2>> lanes(part.elements, operation, at);
  if (lanes.count != 32) emu::fail("a matrix needs all 32 lanes of its simdgroup", at);
  for (uint lane = 0; lane < 32; lane++) {
    whole[matrix_row(lane)][matrix_column(lane)] = float(lanes.value[lane].x);
    whole[matrix_row(lane)][matrix_column(lane) + 1] = float(lanes.value[lane].y);
  }
}

inline float matrix_chain(const float (&a)[8][8], const float (&b)[8][8], uint row, uint column, float start) {
  int chain = emu::order().chain;
  if (chain < 2) {
    for (int step = 0; step < 8; step++) {
      int k = chain == 0 ? step : 7 - step;
      start = __builtin_fmaf(a[row][k], b[k][column], start);
    }
    return start;
  }
  float pairs[4];
  for (int i = 0; i < 4; i++) {
    pairs[i] = __builtin_fmaf(a[row][2 * i], b[2 * i][column], a[row][2 * i + 1] * b[2 * i + 1][column]);
  }
  return ((pairs[0] + pairs[1]) + (pairs[2] + pairs[3])) + start;
}

template <class D, class A, class B, class S>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D>& out, const simdgroup_matrix<A>& a,
                                          const simdgroup_matrix<B>& b, const simdgroup_matrix<S>& start, EMU_AT) {
  float left[8][8], right[8][8];
  whole_matrix(a, left, "simdgroup_multiply_accumulate", at);
  whole_matrix(b, right, "simdgroup_multiply_accumulate", at);
  uint row = matrix_row(emu::place().lane), column = matrix_column(emu::place().lane);
  vec<S, 2> from = start.elements;
  out.elements = vec<D, 2>(D(matrix_chain(left, right, row, column, float(from.x))),
                           D(matrix_chain(left, right, row, column + 1, float(from.y))));
}
template <class D, class A, class B>
inline void simdgroup_multiply(simdgroup_matrix<D>& out, const simdgroup_matrix<A>& a, const simdgroup_matrix<B>& b,
                               EMU_AT) {
  simdgroup_multiply_accumulate(out, a, b, simdgroup_matrix<float>(0.0f), at);
}
template <class T>
inline void simdgroup_load(simdgroup_matrix<T>& into, const T* from, ulong stride = 8, ulong2 origin = ulong2(0, 0),
                           bool transposed = false, EMU_AT) {
  char all[32];
  emu::meet("", 1, all, "simdgroup_load", at);
  ulong row = matrix_row(emu::place().lane), column = matrix_column(emu::place().lane);
  for (ulong i = 0; i < 2; i++) {
    ulong r = transposed ? column + i : row, c = transposed ? row : column + i;
    into.elements[i] = from[(origin.y + r) * stride + origin.x + c];
  }
}
template <class T>
inline void simdgroup_store(const simdgroup_matrix<T>& from, T* into, ulong stride = 8, ulong2 origin = ulong2(0, 0),
                            bool transposed = false, EMU_AT) {
  char all[32];
  emu::meet("", 1, all, "simdgroup_store", at);
  ulong row = matrix_row(emu::place().lane), column = matrix_column(emu::place().lane);
  for (ulong i = 0; i < 2; i++) {
    ulong r = transposed ? column + i : row, c = transposed ? row : column + i;
    into[(origin.y + r) * stride + origin.x + c] = from.elements[i];
  }
}
#undef EMU_AT

}  // namespace metal

namespace emu {
inline uint3 triple(const unsigned (&of)[3]) { return uint3(of[0], of[1], of[2]); }
}  // namespace emu
