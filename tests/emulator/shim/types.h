// Metal's scalar and vector types. Arithmetic on half and bfloat rounds after every operation; a float becomes one only
// where the code says so, which Metal's own rules ask for bfloat.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

// The compiler's own functions stand for <cmath>: reading that header would take longer than compiling a body.
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

using uint = unsigned int;
using ushort = unsigned short;
using uchar = unsigned char;
using ulong = unsigned long;

namespace metal {

struct HalfCode {
  static uint16_t encode(float value) {
    _Float16 small = _Float16(value);
    uint16_t bits;
    memcpy(&bits, &small, 2);
    return bits;
  }
  static float decode(uint16_t bits) {
    _Float16 small;
    memcpy(&small, &bits, 2);
    return float(small);
  }
};

struct BfloatCode {
  static uint16_t encode(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return uint16_t(bits >> 16 | 64);
    return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
  static float decode(uint16_t bits) {
    uint32_t wide = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
  }
};

template <class Code>
struct Small {
  uint16_t bits;
  Small() = default;
  template <class N, class = std::enable_if_t<std::is_arithmetic_v<N>>>
  explicit Small(N value) : bits(Code::encode(float(value))) {}
  template <class Other>
  explicit Small(Small<Other> value) : bits(Code::encode(float(value))) {}
  operator float() const { return Code::decode(bits); }
};

#define EMU_SMALL(OP)                                                                                         \
  template <class C>                                                                                          \
  inline Small<C> operator OP(Small<C> a, Small<C> b) {                                                       \
    return Small<C>(float(a) OP float(b));                                                                    \
  }                                                                                                           \
  template <class C, class I, class = std::enable_if_t<std::is_integral_v<I>>>                                \
  inline Small<C> operator OP(Small<C> a, I b) {                                                              \
    return a OP Small<C>(b);                                                                                  \
  }                                                                                                           \
  template <class C, class I, class = std::enable_if_t<std::is_integral_v<I>>>                                \
  inline Small<C> operator OP(I a, Small<C> b) {                                                              \
    return Small<C>(a) OP b;                                                                                  \
  }                                                                                                           \
  template <class C, class B>                                                                                 \
  inline Small<C>& operator OP##=(Small<C>& a, B b) {                                                         \
    return a = Small<C>(a OP b);                                                                              \
  }
EMU_SMALL(+)
EMU_SMALL(-)
EMU_SMALL(*)
EMU_SMALL(/)
#undef EMU_SMALL

template <class C>
inline Small<C> operator-(Small<C> a) {
  Small<C> made;
  made.bits = a.bits ^ 0x8000;
  return made;
}

template <class T, int N>
struct vec {
  T at[N];
  vec() = default;
  explicit vec(T all) {
    for (int i = 0; i < N; i++) at[i] = all;
  }
  template <class... A, class = std::enable_if_t<sizeof...(A) == N && (N > 1)>>
  vec(A... each) : at{T(each)...} {}
  template <class U>
  explicit vec(const vec<U, N>& other) {
    for (int i = 0; i < N; i++) at[i] = T(other[i]);
  }
  T& operator[](int i) { return at[i]; }
  const T& operator[](int i) const { return at[i]; }
};

// Vectors of two to four with their usual names; pairs and the first three can be read as shorter vectors.
template <class T>
struct vec<T, 2> {
  union {
    T at[2];
    struct {
      T x, y;
    };
  };
  vec() = default;
  explicit vec(T all) : x(all), y(all) {}
  vec(T a, T b) : x(a), y(b) {}
  template <class U>
  explicit vec(const vec<U, 2>& other) : x(T(other.x)), y(T(other.y)) {}
  T& operator[](int i) { return at[i]; }
  const T& operator[](int i) const { return at[i]; }
};

template <class T>
struct alignas(sizeof(T) * 4) vec<T, 3> {
  union {
    T at[3];
    struct {
      T x, y, z;
    };
    vec<T, 2> xy;
  };
  vec() = default;
  explicit vec(T all) : x(all), y(all), z(all) {}
  vec(T a, T b, T c) : x(a), y(b), z(c) {}
  template <class U>
  explicit vec(const vec<U, 3>& other) : x(T(other.x)), y(T(other.y)), z(T(other.z)) {}
  T& operator[](int i) { return at[i]; }
  const T& operator[](int i) const { return at[i]; }
};

template <class T>
struct alignas(sizeof(T) * 4) vec<T, 4> {
  union {
    T at[4];
    struct {
      T x, y, z, w;
    };
    struct {
      vec<T, 2> xy, zw;
    };
  };
  vec() = default;
  explicit vec(T all) : x(all), y(all), z(all), w(all) {}
  vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
  vec(vec<T, 2> a, vec<T, 2> b) : x(a.x), y(a.y), z(b.x), w(b.y) {}
  template <class U>
  explicit vec(const vec<U, 4>& other) : x(T(other.x)), y(T(other.y)), z(T(other.z)), w(T(other.w)) {}
  T& operator[](int i) { return at[i]; }
  const T& operator[](int i) const { return at[i]; }
};

#define EMU_VEC(OP)                                                                  \
  template <class T, int N>                                                          \
  inline vec<T, N> operator OP(vec<T, N> a, vec<T, N> b) {                           \
    for (int i = 0; i < N; i++) a[i] = a[i] OP b[i];                                 \
    return a;                                                                        \
  }                                                                                  \
  template <class T, int N>                                                          \
  inline vec<T, N> operator OP(vec<T, N> a, std::type_identity_t<T> b) {             \
    return a OP vec<T, N>(b);                                                        \
  }                                                                                  \
  template <class T, int N>                                                          \
  inline vec<T, N> operator OP(std::type_identity_t<T> a, vec<T, N> b) {             \
    return vec<T, N>(a) OP b;                                                        \
  }                                                                                  \
  template <class T, int N, class B>                                                 \
  inline vec<T, N>& operator OP##=(vec<T, N>& a, B b) {                              \
    return a = a OP b;                                                               \
  }
EMU_VEC(+)
EMU_VEC(-)
EMU_VEC(*)
EMU_VEC(/)
#undef EMU_VEC

}  // namespace metal

using half = metal::Small<metal::HalfCode>;
using bfloat = metal::Small<metal::BfloatCode>;
using float16_t = half;
using bfloat16_t = bfloat;

#define EMU_NAMES(T)            \
  using T##2 = metal::vec<T, 2>; \
  using T##3 = metal::vec<T, 3>; \
  using T##4 = metal::vec<T, 4>;
EMU_NAMES(float)
EMU_NAMES(half)
EMU_NAMES(bfloat)
EMU_NAMES(int)
EMU_NAMES(uint)
EMU_NAMES(short)
EMU_NAMES(ushort)
EMU_NAMES(char)
EMU_NAMES(uchar)
EMU_NAMES(ulong)
#undef EMU_NAMES
