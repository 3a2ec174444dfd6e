// Rows of bf16 times a quantized (or bf16) matrix: y[m][n] = sum over k of x[m][k] * w[n][k], for few rows m.
//
// A tile is TN outputs; a cluster of S blocks shares it, and every block, then every warp column, takes a part of K:
//
//            K: | block 0          | block 1          |  ...  S blocks of one cluster
//               | part 0 | part 1  | part 2 | part 3  |  ...  P = S * WK parts, cut by (K, S, WK) alone
//   TN outputs  warp column wn takes 16 * RT of them; a warp walks its part of K in groups of 64, in order
//
// A warp streams its own bytes of the packed matrix (one contiguous run a tile) through its own ring in shared memory;
// the block's part of x lies in shared memory for the whole launch. The P partial sums of an output meet in the block
// that owns it, where one more warp adds them in the order of K: warps that multiply send and go on (a fence or a
// barrier of the cluster for each tile cost more than the tile).
//
// Exactness: an output's additions depend on (K, S, WK) only. Rows are columns of the matrix unit's B operand and
// never mix; MT, RT, WN, CG, SLOTS, the grid and the number of rows move work, not bits.
//
// Packed matrix: [N / 16][K / 64] blocks (see affine_pack.py): 32 lanes x 4 words of low nibbles, then the plane of
// high bits, then 8 x (scale, bias) pairs of outputs r and r + 8.
//
// Fixed while compiling: BITS (4, 5, 6, 8; 16 is bf16), MT (tiles of 8 rows), RT (tiles of 16 outputs a warp), WN, WK
// (warps along outputs and along K), S, CG (groups a copy), SLOTS (copies in flight a warp), MEETINGS (tiles whose parts
// may be under way at a time), EXPERTS (1: see below), WIDE (1: float32 results).
// EXPERTS: the matrix is a stack of matrices, and items[] says who is multiplied by whom: a count, then for each item an
// expert, its first member and 1 to 8 members; members[] are pairs of a row of x and a row of y. An item's tiles are one
// matrix's tiles, so a tile of weights is decoded once for all its members, and a row's bits are those it has alone.
#include "row_codes.cuh"

constexpr int WARPS = WN * WK, THREADS = WARPS * 32 + 32, TN = 16 * RT * WN, MP = MT * 8;
constexpr int P = S * WK, TNS = TN / S;  // parts of K; outputs of a tile that one block owns
constexpr int COLUMN = MP + 2;           // floats of an output's rows: two more put neighbours on other banks
constexpr int MEETING = P * TNS * COLUMN;
constexpr int MOST_PAIRS = 256;  // of a launch with experts
constexpr int COPY = CG * BLOCK, SLOT = RT * COPY;

#if BULK
__device__ __forceinline__ void bulk_copy(u32 to, const void* from, u32 bytes, u32 bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}
#endif

// This block's place in its cluster. Below sm_90 a cluster is one block.
__device__ __forceinline__ int cluster_rank() {
#if BULK
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return (int)r;
#else
    return 0;
#endif
}
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A group of RT tiles of outputs and MT tiles of rows: a product that starts from zero, then scale and bias.
__device__ __forceinline__ void add_group(float (&sum)[RT][MT][4], const u8* at, const u8* const (&x)[MT],
                                           const u8* xsum, int other, int lane) {
    Group g[RT];
    uint4 b[MT][2];
    float p[RT][MT][4];
#pragma unroll
    for (int t = 0; t < RT; t++) load(g[t], at + t * COPY, lane);
#pragma unroll
    for (int m = 0; m < MT; m++) {
        b[m][0] = *(const uint4*)(x[m]), b[m][1] = *(const uint4*)(x[m] + 16);
#pragma unroll
        for (int t = 0; t < RT; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) p[t][m][i] = 0.f;
    }
#pragma unroll
    for (int s = 0; s < 4; s++)
#pragma unroll
        for (int t = 0; t < RT; t++) {
            u32 a[4];
            operand(a, g[t], s, at + t * COPY, lane);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                const uint4 h = b[m][s >> 1];
                multiply(p[t][m], a, s & 1 ? h.z : h.x, s & 1 ? h.w : h.y);
            }
        }
#pragma unroll
    for (int t = 0; t < RT; t++) {
        float scale[2], bias[2];
        if (BITS != 16) {
            const uint2 pair = *(const uint2*)(at + t * COPY + 512 + PLANE + (lane >> 2) * 8);
            scale[0] = bf16_low(pair.x), scale[1] = bf16_low(pair.y);
            bias[0] = bf16_high(pair.x), bias[1] = bf16_high(pair.y);
            if (OFFSET != 0)
                bias[0] = __fmaf_rn(-OFFSET, scale[0], bias[0]), bias[1] = __fmaf_rn(-OFFSET, scale[1], bias[1]);
        }
#pragma unroll
        for (int m = 0; m < MT; m++) {
            float2 whole;
            if (BITS != 16) {
                if (EXPERTS)
                    whole = make_float2(*(const float*)xsum, *(const float*)(xsum + other));
                else
                    whole = *(const float2*)(xsum + m * 32);
            }
            float* s = sum[t][m];
            const float* c = p[t][m];
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[i] = BITS == 16
                           ? __fadd_rn(s[i], c[i])
                           : __fmaf_rn(scale[i >> 1], c[i], __fmaf_rn(bias[i >> 1], i & 1 ? whole.y : whole.x, s[i]));
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    affine_rows(const u8* __restrict__ matrix, const u16* __restrict__ x, void* __restrict__ y, int rows, int outputs,
                int groups, int x_stride, int y_stride, int x_bytes, int row_blocks, const int* __restrict__ items,
                const int* __restrict__ members) {
    extern __shared__ __align__(128) u8 memory[];
#if BULK
    __shared__ __align__(8) u64 bars[WARPS * SLOTS + 1 + 2 * MEETINGS];
#endif
    const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, wn = warp % WN, wk = min(warp / WN, WK - 1);
    const int q = lane & 3, r = lane >> 2;
    const int rank = cluster_rank(), part = rank * WK + wk;
    const int first = groups * part / P, count = groups * (part + 1) / P - first;
    const int block_first = groups * (rank * WK) / P, block_count = groups * ((rank + 1) * WK) / P - block_first;
    const int copies = (count + CG - 1) / CG;
    const int clusters = gridDim.x / S / row_blocks, cluster = blockIdx.x / S / row_blocks;
#if EXPERTS
    // Who is multiplied by whom is known only when the kernel before this one has ended.
    __shared__ int table[3 * MOST_PAIRS], member[2 * MOST_PAIRS];
#if BULK
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    const int item_count = items[0];
    for (int i = thread; i < 3 * item_count; i += THREADS) table[i] = items[1 + i];
    for (int i = thread; i < 2 * MOST_PAIRS; i += THREADS) member[i] = members[i];
    __syncthreads();
    const int row0 = 0, my_rows = rows, sum_step = rows;
#else
    const int row0 = (blockIdx.x / S % row_blocks) * MP, my_rows = min(rows - row0, MP), sum_step = MP;
#endif
    const int tiles16 = (outputs + 15) / 16, tiles_each = (outputs + TN - 1) / TN;
#if EXPERTS
    const int tiles = tiles_each * item_count;
#else
    const int tiles = tiles_each;
#endif
    const int my_tiles = cluster < tiles ? (tiles - 1 - cluster) / clusters + 1 : 0;

    u8* ring = memory + warp * (SLOTS * SLOT);
    u8* xs = memory + WARPS * (SLOTS * SLOT);
    float* sums = (float*)(xs + (EXPERTS ? rows : min(rows, MP)) * x_bytes);
    // Whole quarters of 16 bytes, so that copies of what lies behind stay aligned.
    float* meeting = sums + (BITS == 16 ? 0 : ((x_bytes / 128) * sum_step + 3) / 4 * 4);
    const bool multiplies = warp < WARPS;  // the last warp fetches x and adds up
#if BULK
    const u32 bar = shared_address(&bars[warp * SLOTS]), x_bar = shared_address(&bars[WARPS * SLOTS]);
    const u32 full = x_bar + 8, empty = full + 8 * MEETINGS;  // of each meeting: all parts are there; all owners are done
#endif

    // The cursor of what is copied next.
    int ahead_tiles = my_tiles, ahead_copies = copies;
#if EXPERTS
    static_assert(RT == 1 && MT == 1, "experts: 8 rows and 16 outputs a warp");
    auto place = [&](int tile) {
        const int expert = table[tile / tiles_each * 3], tile16 = min(tile % tiles_each * WN + wn, tiles16 - 1);
        return matrix + (((size_t)expert * tiles16 + tile16) * groups + first) * BLOCK;
    };
    int ahead_tile = cluster;
    const u8* source = my_tiles > 0 ? place(cluster) : matrix;
#else
    const u8* source = matrix + ((size_t)((cluster * WN + wn) * RT) * groups + first) * BLOCK;
#endif
    const size_t tile_bytes = (size_t)groups * BLOCK, to_next_tile = clusters * WN * RT * tile_bytes - (copies - 1) * COPY;
    const int last_bytes = (count - (copies - 1) * CG) * BLOCK;
    const int beyond = cluster + (my_tiles - 1) * clusters;  // the last tile here; it may reach past the outputs
#if BULK
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
    auto fetch = [&](int slot) {
        if (ahead_tiles > 0) {
            const int bytes = ahead_copies == 1 ? last_bytes : COPY;
#if BULK
            if (lane == 0) {
                expect(bar + slot * 8, RT * bytes);
#pragma unroll
                for (int t = 0; t < RT; t++) {
                    const u8* from = source + t * tile_bytes;
                    if (!EXPERTS && ahead_tiles == 1) from -= max((beyond * WN + wn) * RT + t - (tiles16 - 1), 0) * tile_bytes;
                    bulk_stream(shared_address(ring + slot * SLOT + t * COPY), from, bytes, bar + slot * 8, policy);
                }
            }
#else
            for (int t = 0; t < RT; t++) {
                const u8* from = source + t * tile_bytes;
                if (!EXPERTS && ahead_tiles == 1) from -= max((beyond * WN + wn) * RT + t - (tiles16 - 1), 0) * tile_bytes;
                const u32 to = shared_address(ring + slot * SLOT + t * COPY);
                for (int i = lane * 16; i < bytes; i += 512)
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(from + i) : "memory");
            }
#endif
            source += COPY;
            if (--ahead_copies == 0) {
                ahead_copies = copies, ahead_tiles--;
#if EXPERTS
                ahead_tile += clusters;
                if (ahead_tiles > 0) source = place(ahead_tile);
#else
                source += to_next_tile - COPY;
#endif
#if BULK
                // The next kernel may come: not earlier, or its blocks gather where this one's left first.
                if (ahead_tiles == 0) asm volatile("griddepcontrol.launch_dependents;");
#endif
            }
        }
#if !BULK
        asm volatile("cp.async.commit_group;" ::: "memory");
#endif
    };

#if BULK
    if (multiplies) {
        if (lane == 0)
            for (int i = 0; i < SLOTS; i++) barrier_init(bar + i * 8, 1);
    } else if (lane == 0) {
        barrier_init(x_bar, 1);
        for (int i = 0; i < MEETINGS; i++) barrier_init(full + i * 8, 1), barrier_init(empty + i * 8, S);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
#endif
    // The matrix does not depend on earlier kernels: its first bytes are on their way before x is complete.
    if (multiplies && count > 0)
#pragma unroll
        for (int i = 0; i < SLOTS; i++) fetch(i);
#if BULK
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
    if (!multiplies) {
        asm volatile("griddepcontrol.wait;" ::: "memory");
        if (lane == 0) expect(x_bar, my_rows * block_count * 128);
        __syncwarp();
        for (int m = lane; m < my_rows; m += 32)
            bulk_copy(shared_address(xs + m * x_bytes), x + (size_t)(row0 + m) * x_stride + block_first * 64,
                      block_count * 128, x_bar);
    }
    // Every barrier of the cluster is ready for the others from here on.
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    await(x_bar, 0);
#else
    for (int i = thread; i < my_rows * block_count * 8; i += THREADS) {
        const int m = i / (block_count * 8), c = i % (block_count * 8);
        *(uint4*)(xs + m * x_bytes + c * 16) =
            *(const uint4*)(x + (size_t)(row0 + m) * x_stride + block_first * 64 + c * 8);
    }
    __syncthreads();
#endif
    // Sums of x over each group, by four lanes in a fixed order: the biases' part of the product.
    if (BITS != 16) {
        const int wanted = my_rows * block_count;
        for (int base = 0; base < wanted; base += THREADS / 4) {
            const bool mine = base + (thread >> 2) < wanted;
            const int i = mine ? base + (thread >> 2) : wanted - 1, g = i / my_rows, m = i % my_rows;
            u8* at = xs + m * x_bytes + g * 128 + q * 32;
            uint4 v[2] = {*(const uint4*)at, *(const uint4*)(at + 16)};
            const u32 w[8] = {v[0].x, v[0].y, v[0].z, v[0].w, v[1].x, v[1].y, v[1].z, v[1].w};
            float pair[8];
#pragma unroll
            for (int k = 0; k < 8; k++) pair[k] = __fadd_rn(bf16_low(w[k]), bf16_high(w[k]));
#pragma unroll
            for (int step = 4; step > 0; step /= 2)
#pragma unroll
                for (int k = 0; k < step; k++) pair[k] = __fadd_rn(pair[k], pair[k + step]);
            float s = pair[0];
            s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 1));
            s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 2));
            if (q == 0 && mine) sums[g * sum_step + m] = s * LACK;
            if (BITS == 4 && mine) {
                uint4 scaled[2];
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    scaled[h].x = fma_pair(w[4 * h], 0x5F805F80u, 0x80008000u);
                    scaled[h].y = fma_pair(w[4 * h + 1], 0x5F805F80u, 0x80008000u);
                    scaled[h].z = fma_pair(w[4 * h + 2], 0x5D805D80u, 0x80008000u);
                    scaled[h].w = fma_pair(w[4 * h + 3], 0x5D805D80u, 0x80008000u);
                }
                *(uint4*)at = scaled[0], *(uint4*)(at + 16) = scaled[1];
            }
        }
        __syncthreads();
    }

    // The owner of outputs [rank * TNS, (rank + 1) * TNS) of a tile adds their P parts in the order of K.
    auto add_up = [&](int tile, const float* parts, int from, int step) {
#if EXPERTS
        const int* item = table + tile / tiles_each * 3;
        const int count_here = item[2], local = tile % tiles_each;
#else
        const int count_here = my_rows, local = tile;
#endif
        for (int e = from; e < TNS * ((count_here + 1) / 2); e += step) {
            const int n = e % TNS, m = e / TNS * 2, out = local * TN + rank * TNS + n;
            float2 part[P];
#pragma unroll
            for (int p = 0; p < P; p++) part[p] = *(const float2*)(parts + (p * TNS + n) * COLUMN + m);
            float2 s = part[0];
#pragma unroll
            for (int p = 1; p < P; p++) s.x = __fadd_rn(s.x, part[p].x), s.y = __fadd_rn(s.y, part[p].y);
            s.x *= UNIT, s.y *= UNIT;
            if (out < outputs) {
#if EXPERTS
                const int* mine = member + 2 * (item[1] + m) + 1;
                store(y, (size_t)mine[0] * y_stride + out, s.x);
                if (m + 1 < count_here) store(y, (size_t)mine[2] * y_stride + out, s.y);
#else
                const size_t to = (size_t)(row0 + m) * y_stride + out;
                store(y, to, s.x);
                if (m + 1 < my_rows) store(y, to + y_stride, s.y);
#endif
            }
        }
    };

#if BULK
    if (!multiplies) {
        for (int i = 0; i < my_tiles; i++) {
            const int at = i % MEETINGS;
            if (lane == 0) expect(full + at * 8, MEETING * 4);
            await(full + at * 8, i / MEETINGS & 1);
            add_up(cluster + i * clusters, meeting + at * MEETING, lane, 32);
            __syncwarp();
            // Told only to blocks that wait for it: a block may end once its own parts are sent.
            if (i + MEETINGS < my_tiles && lane < S) arrive_there(there(empty + at * 8, lane));
        }
    }
    const int my_products = multiplies ? my_tiles : 0;
#else
    const int my_products = my_tiles;
#endif
    const u8* x_at[MT];
#pragma unroll
    for (int m = 0; m < MT; m++)
        x_at[m] = xs + min(m * 8 + r, my_rows - 1) * x_bytes + q * 32 + (first - block_first) * 128;
    const u8* sum_at = (const u8*)(sums + (first - block_first) * sum_step + 2 * q);
    int other = 4;  // bytes between the sums of a lane's two rows

    int slot = 0;
    u32 phase = 0;
    for (int i = 0; i < my_products; i++) {
        float sum[RT][MT][4] = {};
#if EXPERTS
        {  // the columns of this product are the item's members, wherever their rows of x are
            const int* item = table + (cluster + i * clusters) / tiles_each * 3;
            const int* mine = member + 2 * item[1];
            const int last = item[2] - 1, one = mine[2 * min(2 * q, last)], two = mine[2 * min(2 * q + 1, last)];
            x_at[0] = xs + mine[2 * min(r, last)] * x_bytes + q * 32 + (first - block_first) * 128;
            sum_at = (const u8*)(sums + (first - block_first) * sum_step + one);
            other = (two - one) * 4;
        }
#endif
        for (int c = 0; c < copies && multiplies; c++) {
#if BULK
            await(bar + slot * 8, phase);
#else
            asm volatile("cp.async.wait_group %0;" ::"n"(SLOTS - 1) : "memory");
            __syncwarp();
#endif
            const u8* at = ring + slot * SLOT;
            const int g0 = c * CG, left = count - g0;
            const u8* x_now[MT];
#pragma unroll
            for (int m = 0; m < MT; m++) x_now[m] = x_at[m] + g0 * 128;
            const u8* sum_now = sum_at + g0 * sum_step * 4;
            if (left >= CG) {
#pragma unroll
                for (int j = 0; j < CG; j++) {
                    add_group(sum, at + j * BLOCK, x_now, sum_now + j * sum_step * 4, other, lane);
#pragma unroll
                    for (int m = 0; m < MT; m++) x_now[m] += 128;
                }
            } else {
                for (int j = 0; j < left; j++) {
                    add_group(sum, at + j * BLOCK, x_now, sum_now + j * sum_step * 4, other, lane);
#pragma unroll
                    for (int m = 0; m < MT; m++) x_now[m] += 128;
                }
            }
            __syncwarp();
            fetch(slot);
            if (++slot == SLOTS) slot = 0, phase ^= 1;
        }
        const int meet = i % MEETINGS;
#if BULK
        if (i >= MEETINGS) await(empty + meet * 8, (i / MEETINGS - 1) & 1);
        float* mine = meeting + MEETINGS * MEETING + (meet * WARPS + warp) * (RT * 16 * COLUMN);
#else
        __syncthreads();
        float* mine = meeting + (wk * TN + wn * RT * 16) * COLUMN;
#endif
        if (multiplies) {
#pragma unroll
            for (int t = 0; t < RT; t++)
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        *(float2*)(mine + (t * 16 + h * 8 + r) * COLUMN + m * 8 + 2 * q) =
                            make_float2(sum[t][m][2 * h], sum[t][m][2 * h + 1]);
        }
#if BULK
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane < 2 * RT) {  // 8 outputs a lane, to the block that owns them
            const int n = wn * RT * 16 + lane * 8, owner = n / TNS;
            bulk_send(there(shared_address(meeting + meet * MEETING + (part * TNS + n % TNS) * COLUMN), owner),
                      shared_address(mine + lane * 8 * COLUMN), 8 * COLUMN * 4, there(full + meet * 8, owner));
        }
#else
        __syncthreads();
        add_up(cluster + i * clusters, meeting, thread, THREADS);
#endif
    }
#if BULK
    // No block's memory goes before everything sent from it and to it has arrived, which the adding warps know.
    asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
#endif
}
