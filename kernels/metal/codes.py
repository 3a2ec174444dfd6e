"""Reading affine codes: a row is one little-endian stream of bits, so 32 codes of `BITS` bits are `BITS` words."""

from __future__ import annotations

CODES = """
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
