// What both row kernels have in common: words, barriers and copies between blocks of a cluster, and how a group of codes
// becomes the matrix unit's A operand, so that both make the same bits. Included by each; reads BITS and WIDE alone.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#if __CUDA_ARCH__ >= 900
#define BULK 1
#else
#define BULK 0
#endif

constexpr int PLANE = BITS == 16 ? 0 : (BITS - 4) * 128;
constexpr int BLOCK = BITS == 16 ? 2048 : 512 + PLANE + 64;

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

#if BULK
__device__ __forceinline__ void barrier_init(u32 bar, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
// Weights are read once a pass: they leave the cache first, so that activations stay.
__device__ __forceinline__ void bulk_stream(u32 to, const void* from, u32 bytes, u32 bar, u64 policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(bar), "l"(policy)
        : "memory");
}
__device__ __forceinline__ void await(u32 bar, u32 phase) {
    asm volatile(
        "{\n.reg .pred p;\nAGAIN%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE%=;\nbra AGAIN%=;\nDONE%=:\n}" ::"r"(bar),
        "r"(phase)
        : "memory");
}
__device__ __forceinline__ u32 there(u32 local, int rank) {
    u32 a;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(local), "r"(rank));
    return a;
}
__device__ __forceinline__ void arrive_here(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void arrive_there(u32 remote_bar) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote_bar) : "memory");
}
// From this block's memory into another's; the other's barrier counts the bytes.
__device__ __forceinline__ void bulk_send(u32 remote, u32 local, u32 bytes, u32 remote_bar) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(remote),
                 "r"(local), "r"(bytes), "r"(remote_bar)
                 : "memory");
}
#endif

// (w & mask) | with, in one instruction.
template <u32 MASK, u32 WITH>
__device__ __forceinline__ u32 pick(u32 w) {
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(w), "n"(MASK), "n"(WITH));
    return r;
}
template <u32 MASK>
__device__ __forceinline__ u32 pick_or(u32 w, u32 with) {
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(w), "n"(MASK), "r"(with));
    return r;
}
__device__ __forceinline__ u32 fma_pair(u32 a, u32 b, u32 c) {
    u32 r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
__device__ __forceinline__ float bf16_low(u32 w) { return __uint_as_float(w << 16); }
__device__ __forceinline__ float bf16_high(u32 w) { return __uint_as_float(w & 0xFFFF0000u); }

// A group of 16 outputs x 64 inputs, to become the matrix unit's A operand in 4 steps of 4 words.
//
// 4 bits: a nibble in bits 0-3 of a bf16 number is q * 2^-133, one in bits 4-7 is q * 2^-129 (below 2^-125 the exponent's
// last bit weighs what the bit above the fraction would): one mask makes an operand, and half of the shifts are saved,
// which matters because shifts and masks share the pipe that limits few rows. x is scaled by 2^64 and 2^60 to match, so that
// products, sums of x and results lack 2^69, which the last addition gives back. 5, 6 bits: 0x4300 with q in its low bits
// is 128 + q. 8 bits: q. All of it is exact.
constexpr float OFFSET = BITS == 5 || BITS == 6 ? 128.f : 0.f;  // what is taken off the bias, times the scale
constexpr float UNIT = BITS == 4 ? 590295810358705651712.f : 1.f, LACK = 1.f / UNIT;  // 2^69
struct Group {
    u32 low[4], high[4];
};
__device__ __forceinline__ void load(Group& g, const u8* at, int lane) {
    if (BITS == 16) return;
    uint4 v = *(const uint4*)(at + lane * 16);
    g.low[0] = v.x, g.low[1] = v.y, g.low[2] = v.z, g.low[3] = v.w;
    if (BITS == 5) g.high[0] = *(const u32*)(at + 512 + lane * 4);
    if (BITS == 6) {
        uint2 h = *(const uint2*)(at + 512 + lane * 8);
        g.high[0] = h.x, g.high[1] = h.y;
    }
    if (BITS == 8) {
        uint4 h = *(const uint4*)(at + 512 + lane * 16);
        g.high[0] = h.x, g.high[1] = h.y, g.high[2] = h.z, g.high[3] = h.w;
    }
}
__device__ __forceinline__ void operand(u32 (&a)[4], const Group& g, int s, const u8* at, int lane) {
    if (BITS == 16) {
        uint4 w = *(const uint4*)(at + s * 512 + lane * 16);
        a[0] = w.x, a[1] = w.y, a[2] = w.z, a[3] = w.w;
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (BITS == 4) {
            a[j] = (s < 2 ? g.low[j] : g.low[j] >> 8) & (s & 1 ? 0x00F000F0u : 0x000F000Fu);
            continue;
        }
        u32 w = pick<0x000F000Fu, 0x43004300u>(g.low[j] >> (4 * s));
        if (BITS == 5) {
            const int bit = j * 4 + s;
            w = pick_or<0x00100010u>(bit >= 4 ? g.high[0] >> (bit - 4) : g.high[0] << (4 - bit), w);
        }
        if (BITS == 6) {
            const int bit = ((j & 1) * 4 + s) * 2;
            w = pick_or<0x00300030u>(bit >= 4 ? g.high[j >> 1] >> (bit - 4) : g.high[j >> 1] << (4 - bit), w);
        }
        if (BITS == 8) {  // 16 * (128 + h) - 2176 = 16 h - 128, then + (128 + l): every step exact
            u32 h = pick<0x000F000Fu, 0x43004300u>(g.high[j] >> (4 * s));
            w = fma_pair(w, 0x3F803F80u, fma_pair(h, 0x41804180u, 0xC508C508u));
        }
        a[j] = w;
    }
}

__device__ __forceinline__ void store(void* y, size_t at, float value) {
#if WIDE
    ((float*)y)[at] = value;
#else
    u16 half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    ((u16*)y)[at] = half;
#endif
}
