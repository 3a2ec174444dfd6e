// What the row kernels have in common: words, barriers and copies between blocks of a cluster, how a group of codes becomes
// the matrix unit's A operand, and how parts' sums become results, so that all make the same bits. Included by each; reads
// BITS, GATED and WIDE alone.
//
// GATED (1): outputs are four of a gate, then the four of what it opens, and so on; results are silu(gate) * opened, half as
// many.
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

// Not through the first cache: the kernel that writes x may have ended only now.
__device__ __forceinline__ uint4 fresh(const void* at) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

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

// A group of 16 outputs x 64 inputs, to become the matrix unit's A operand in 4 steps of 4 words: scale * code + bias, each
// rounded once to bf16, as a prompt's weights are.
//
// 4 bits: a nibble in bits 0-3 of a bf16 number is q * 2^-133, one in bits 4-7 is q * 2^-129 (below 2^-125 the exponent's
// last bit weighs what the bit above the fraction would): one mask makes a factor, and half of the shifts are saved. Scales
// are multiplied by 2^100 and 2^96 to match and biases by 2^-33, all of it exact, so that weights and results lack 2^33,
// which the last addition gives back. 5, 6 bits: 0x4300 with q in its low bits is 128 + q, from which 128 is taken. 8 bits: q.
constexpr float UNIT = BITS == 4 ? 8589934592.f : 1.f;  // 2^33
struct Group {
    u32 low[4], high[4];
    uint2 pair;  // scale and bias of outputs r and r + 8
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
    g.pair = *(const uint2*)(at + 512 + PLANE + (lane >> 2) * 8);
}
// A pair of scale and bias for each of outputs r and r + 8; 4 bits: `pair` for nibbles in bits 0-3, `pair16` in bits 4-7.
struct Factors {
    u32 pair[2], pair16[2];
};
__device__ __forceinline__ Factors factors(const Group& g) {
    Factors f;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        f.pair[h] = h ? g.pair.y : g.pair.x;
        if (BITS == 4) {
            f.pair16[h] = fma_pair(f.pair[h], 0x2F006F80u, 0x80008000u);
            f.pair[h] = fma_pair(f.pair[h], 0x2F007180u, 0x80008000u);
        }
    }
    return f;
}
// Both halves of w times the scale, plus the bias. Halves are named, not copied: an instruction may read one half twice.
__device__ __forceinline__ u32 scaled(u32 w, u32 pair) {
    u32 r;
    asm("{\n.reg .b16 s, b;\n.reg .b32 ss, bb;\nmov.b32 {s, b}, %2;\nmov.b32 ss, {s, s};\nmov.b32 bb, {b, b};\n"
        "fma.rn.bf16x2 %0, %1, ss, bb;\n}"
        : "=r"(r)
        : "r"(w), "r"(pair));
    return r;
}
__device__ __forceinline__ void operand(u32 (&a)[4], const Group& g, const Factors& f, int s, const u8* at, int lane) {
    if (BITS == 16) {
        uint4 w = *(const uint4*)(at + s * 512 + lane * 16);
        a[0] = w.x, a[1] = w.y, a[2] = w.z, a[3] = w.w;
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (BITS == 4) {
            const u32 w = (s < 2 ? g.low[j] : g.low[j] >> 8) & (s & 1 ? 0x00F000F0u : 0x000F000Fu);
            a[j] = scaled(w, s & 1 ? f.pair16[j & 1] : f.pair[j & 1]);
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
        } else {
            w = fma_pair(w, 0x3F803F80u, 0xC300C300u);
        }
        a[j] = scaled(w, f.pair[j & 1]);
    }
}

__device__ __forceinline__ void store_shared(u32 to, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}
// The sum of P parts of four neighbouring outputs, in the order of K.
template <int P>
__device__ __forceinline__ float4 in_order(const float4 (&part)[P]) {
    float4 s = part[0];
#pragma unroll
    for (int p = 1; p < P; p++) {
        s.x = __fadd_rn(s.x, part[p].x), s.y = __fadd_rn(s.y, part[p].y);
        s.z = __fadd_rn(s.z, part[p].z), s.w = __fadd_rn(s.w, part[p].w);
    }
    return make_float4(s.x * UNIT, s.y * UNIT, s.z * UNIT, s.w * UNIT);
}
// The same of parts that lie `step` floats apart.
template <int P>
__device__ __forceinline__ float4 sum_parts(const float* parts, int step) {
    float4 part[P];
#pragma unroll
    for (int p = 0; p < P; p++) part[p] = *(const float4*)(parts + p * step);
    return in_order(part);
}
// Four neighbouring outputs of a row, of which `left` exist, to place `at`; `aligned`: rows begin where four of them may.
__device__ __forceinline__ void store4(void* y, size_t at, float4 s, int left, bool aligned) {
    u32 two[2];
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two[0]) : "f"(s.y), "f"(s.x));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two[1]) : "f"(s.w), "f"(s.z));
    if (left >= 4 && aligned) {
        if (WIDE)
            *(float4*)((float*)y + at) = s;
        else
            *(uint2*)((u16*)y + at) = make_uint2(two[0], two[1]);
        return;
    }
    const float each[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < left) {
            if (WIDE)
                ((float*)y)[at + i] = each[i];
            else
                ((u16*)y)[at + i] = (u16)(two[i >> 1] >> (16 * (i & 1)));
        }
}
// silu(gate) * up. Both are rounded to bf16 first where results are bf16, as if they had been written and read again.
__device__ __forceinline__ float opened(float gate, float up) {
    if (!WIDE)
        asm("{\n.reg .b16 s, none;\nmov.b16 none, 0;\ncvt.rn.bf16.f32 s, %0;\nmov.b32 %0, {none, s};\n"
            "cvt.rn.bf16.f32 s, %1;\nmov.b32 %1, {none, s};\n}"
            : "+f"(gate), "+f"(up));
    float e, h;
    asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(gate * -1.4426950408889634f));
    asm("div.full.f32 %0, %1, %2;" : "=f"(h) : "f"(gate), "f"(1.f + e));
    return h * up;
}
// Results of a row at `row` out of four sums from output `out` on, of `outputs`; `aligned`: see store4. Of a gated matrix an even
// lane has four of a gate, the odd one beside it the four that it opens: they exchange halves, so that each makes two results.
// Then all lanes of a warp come here, those that have nothing (`is_real` 0) too.
__device__ __forceinline__ void store_results(void* y, size_t row, int out, float4 s, int outputs, bool aligned, bool is_real) {
#if GATED
    const bool has_up = threadIdx.x & 1;
    const float first = __shfl_xor_sync(~0u, has_up ? s.x : s.z, 1), second = __shfl_xor_sync(~0u, has_up ? s.y : s.w, 1);
    const float one = opened(has_up ? first : s.x, has_up ? s.z : first);
    const float two = opened(has_up ? second : s.y, has_up ? s.w : second);
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(two), "f"(one));
    const size_t at = row + out / 2;  // output 8 n is result 4 n, and rows of results begin at even places
    if (!is_real || out >= outputs) return;
    if (WIDE)
        *(float2*)((float*)y + at) = make_float2(one, two);
    else
        *(u32*)((u16*)y + at) = both;
#else
    if (is_real) store4(y, row + out, s, outputs - out, aligned);
#endif
}
