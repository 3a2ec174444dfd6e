// Codes as a checkpoint has them (rows of one little-endian bit stream, a scale and a bias for 64 codes) into the blocks
// that affine_rows.cu streams. Grid: x = group, y and z = tile of 16 outputs; a warp writes one block. See affine_pack.py.
typedef unsigned short u16;
typedef unsigned int u32;

constexpr int PLANE = (BITS - 4) * 32, WORDS = 128 + PLANE + 16;

__device__ u32 code_of(const u32* row, int k) {
    const int bit = k * BITS, word = bit >> 5, shift = bit & 31;
    u32 c = row[word] >> shift;
    if (shift + BITS > 32) c |= row[word + 1] << (32 - shift);
    return c & ((1u << BITS) - 1);
}

extern "C" __global__ void __launch_bounds__(32)
    affine_pack(const u32* __restrict__ codes, const u16* __restrict__ scales, const u16* __restrict__ biases,
                u32* __restrict__ packed, int outputs, int groups) {
    const int g = blockIdx.x, lane = threadIdx.x, q = lane & 3, r = lane >> 2;
    const int tile = blockIdx.z * gridDim.y + blockIdx.y;
    if (tile >= (outputs + 15) / 16) return;
    u32* block = packed + ((size_t)tile * groups + g) * WORDS;
    u32 low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0};
    for (int j = 0; j < 4; j++) {
        const int n = tile * 16 + (j & 1) * 8 + r;
        if (n >= outputs) continue;
        const u32* row = codes + (size_t)n * groups * (2 * BITS);
        for (int s = 0; s < 4; s++)
            for (int half = 0; half < 2; half++) {
                const u32 c = code_of(row, g * 64 + q * 16 + 4 * s + (j >> 1) * 2 + half);
                low[j] |= (c & 15) << (4 * s + 16 * half);
                if (BITS == 5) high[0] |= (c >> 4) << (j * 4 + s + 16 * half);
                if (BITS == 6) high[j >> 1] |= (c >> 4) << (((j & 1) * 4 + s) * 2 + 16 * half);
                if (BITS == 8) high[j] |= (c >> 4) << (4 * s + 16 * half);
            }
    }
    for (int j = 0; j < 4; j++) block[lane * 4 + j] = low[j];
    const int words = BITS == 8 ? 4 : BITS - 4;
    for (int j = 0; j < words; j++) block[128 + lane * words + j] = high[j];
    if (lane < 16) {
        const int n = tile * 16 + (lane & 1) * 8 + (lane >> 1);
        const size_t at = (size_t)n * groups + g;
        block[128 + PLANE + lane] = n < outputs ? scales[at] | ((u32)biases[at] << 16) : 0;
    }
}
