"""Reading affine codes: a row is one little-endian stream of bits, so 32 codes of `BITS` bits are `BITS` words."""

from __future__ import annotations

CODES = """
// The BITS words of 32 codes, in loads as wide as their alignment allows: a row's pieces are BITS words long.
template <int BITS>
inline void hold_words(const device uint* from, thread uint* held) {
  if (BITS % 4 == 0) {
    for (int w = 0; w < BITS / 4; w++) {
      const uint4 four = ((const device uint4*)from)[w];
      for (int i = 0; i < 4; i++) held[w * 4 + i] = four[i];
    }
  } else if (BITS % 2 == 0) {
    for (int w = 0; w < BITS / 2; w++) {
      const uint2 two = ((const device uint2*)from)[w];
      held[w * 2] = two.x;
      held[w * 2 + 1] = two.y;
    }
  } else {
    for (int w = 0; w < BITS; w++) held[w] = from[w];
  }
}

// Code j of 32, from the BITS words that hold them; j is a constant where loops are unrolled.
template <int BITS>
inline uint held_code(const thread uint* words, int j) {
  const int bit = j * BITS, word = bit / 32, shift = bit % 32;
  uint code = words[word] >> shift;
  if (shift + BITS > 32) code |= words[word + 1] << (32 - shift);
  return code & ((1u << BITS) - 1u);
}

// Code k of a whole row.
template <int BITS>
inline uint code_at(const device uint* row, int k) {
  const int bit = k * BITS, word = bit / 32, shift = bit % 32;
  uint code = row[word] >> shift;
  if (shift + BITS > 32) code |= row[word + 1] << (32 - shift);
  return code & ((1u << BITS) - 1u);
}
"""
