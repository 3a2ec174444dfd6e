// Rows of bf16 times a quantized (or bf16) matrix: y[m][n] = sum over k of x[m][k] * w[n][k], for few rows m.
//
// A tile is TN outputs; a cluster of S blocks shares it, and every block, then every warp column, takes a part of K:
//
//            K: | block 0          | block 1          |  ...  S blocks of one cluster
//               | part 0 | part 1  | part 2 | part 3  |  ...  P = S * WK parts, cut by (K, S, WK) alone
//   TN outputs  warp column wn takes 16 * RT of them; a warp walks its part of K in groups of 64, in order
//
// A warp streams its own bytes of the packed matrix (one contiguous run a tile) through its own ring in shared memory;
// the block's part of x lies in shared memory for the whole launch, and where parts are short in registers. The P partial
// sums of an output meet in the block that owns it, where other warps add them in the order of K: warps that multiply send
// and go on (a fence or a barrier of the cluster for each tile cost more than the tile).
//
// Exactness: weights are bf16 numbers, each rounded once, and an output's additions depend on (K, S * WK) only: a chain of
// products over each part of K, then the parts in order. Rows are columns of the matrix unit's B operand and never mix; MT,
// RT, WN, CG, SLOTS, KEPT, EARLY, BEHIND, the grid and the number of rows move work, not bits.
//
// Packed matrix: [N / 16][K / 64] blocks (see affine_pack.py): 32 lanes x 4 words of low nibbles, then the plane of
// high bits, then 8 x (scale, bias) pairs of outputs r and r + 8.
//
// Fixed while compiling: BITS (4, 5, 6, 8; 16 is bf16), MT (tiles of 8 rows), RT (tiles of 16 outputs a warp), WN, WK
// (warps along outputs and along K), S, CG (groups a copy), SLOTS (copies in flight a warp), MEETINGS (tiles whose parts
// may be under way at a time), ADDERS (warps that add up), KEPT (the first groups of a part, whose x is kept in registers; of
// the others it is read again for each tile), PART (where KEPT is not 0: the most groups of a part; else 0), EARLY (copies
// that a warp asks for before x; 0: all in flight), BEHIND (when it asks for the others: 1 when x has come, 0 when x has been
// asked for), EXPERTS (1: see below), GATED (1: see row_codes.cuh), WIDE (1: float32 results).
// EXPERTS: the matrix is a stack of matrices, and items[] says who is multiplied by whom: a count, then for each item an
// expert, its first member and 1 to 8 members; members[] are pairs of a row of x and a row of y, those of an item behind
// those of the item before it. An item's tiles are one matrix's tiles, so a tile of weights is decoded once for all its
// members, and a row's bits are those it has alone. `rows` are then those that a block keeps: all of x where `row_blocks` is
// 1, else those of its own items.
#include "row_codes.cuh"

constexpr int WARPS = WN * WK, THREADS = WARPS * 32 + ADDERS * 32, TN = 16 * RT * WN, MP = MT * 8;
constexpr int P = S * WK, TNS = TN / S;  // parts of K; outputs of a tile that one block owns
constexpr int COLUMN = 20;               // floats of a row of 16 outputs: four more put neighbours on other banks
constexpr int SIXTEEN = MP * COLUMN, MEETING = P * (TNS / 16) * SIXTEEN;
static_assert(TNS % 16 == 0, "sixteens of outputs for every owner");
static_assert(!(EXPERTS && GATED), "experts' outputs are written as they are");
constexpr int MOST_PAIRS = 256;  // of a launch with experts
constexpr int COPY = CG * BLOCK, SLOT = RT * COPY;
// Copies that are asked for before x. What is asked for first comes first, also where it comes from farther away.
constexpr int FIRST = BULK && EARLY ? EARLY : SLOTS;

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

// A group of RT tiles of outputs, times x of MT tiles of rows: a lane's 16 inputs of a row.
__device__ __forceinline__ void add_group(float (&sum)[RT][MT][4], const u8* at, const uint4 (&x)[MT][2], int lane) {
    Group g[RT];
    Factors f[RT];
#pragma unroll
    for (int t = 0; t < RT; t++) load(g[t], at + t * COPY, lane), f[t] = factors(g[t]);
#pragma unroll
    for (int s = 0; s < 4; s++)
#pragma unroll
        for (int t = 0; t < RT; t++) {
            u32 a[4];
            operand(a, g[t], f[t], s, at + t * COPY, lane);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                const uint4 h = x[m][s >> 1];
                multiply(sum[t][m], a, s & 1 ? h.z : h.x, s & 1 ? h.w : h.y);
            }
        }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    affine_rows(const u8* __restrict__ matrix, const u16* __restrict__ x, void* __restrict__ y, int rows, int outputs,
                int groups, int x_stride, int y_stride, int x_bytes, int row_blocks, const int* items,
                const int* members) {
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
#if EXPERTS
    const bool all_rows = row_blocks == 1;
    const int clusters = gridDim.x / S, cluster = blockIdx.x / S;
#else
    const int clusters = gridDim.x / S / row_blocks, cluster = blockIdx.x / S / row_blocks;
#endif
#if EXPERTS
    // Who is multiplied by whom is known only when the kernel before this one has ended. Neither pointer is __restrict__:
    // loads that take memory for unchanged since this kernel started might find what lay there before.
    __shared__ int table[3 * MOST_PAIRS], member[2 * MOST_PAIRS];
#if BULK
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    const int item_count = items[0];
    for (int i = thread; i < 3 * item_count; i += THREADS) table[i] = items[1 + i];
    for (int i = thread; i < 2 * MOST_PAIRS; i += THREADS) member[i] = members[i];
    __syncthreads();
#else
    const int row0 = (blockIdx.x / S % row_blocks) * MP, my_rows = min(rows - row0, MP);
#endif
    const int tiles16 = (outputs + 15) / 16, tiles_each = (outputs + TN - 1) / TN;
#if EXPERTS
    // A cluster's tiles are neighbours, so that its items are few.
    const int tiles = tiles_each * item_count, tile0 = tiles * cluster / clusters;
    const int my_tiles = tiles * (cluster + 1) / clusters - tile0, tile_step = 1;
    const int* const last_item = table + (tile0 + max(my_tiles, 1) - 1) / tiles_each * 3;
    const int member0 = my_tiles > 0 ? table[tile0 / tiles_each * 3 + 1] : 0;
    const int my_rows = my_tiles <= 0 ? 0 : all_rows ? rows : last_item[1] + last_item[2] - member0;
#else
    const int tiles = tiles_each, tile0 = cluster, tile_step = clusters;
    const int my_tiles = cluster < tiles ? (tiles - 1 - cluster) / clusters + 1 : 0;
#endif

    u8* ring = memory + warp * (SLOTS * SLOT);
    u8* xs = memory + WARPS * (SLOTS * SLOT);
    float* meeting = (float*)(xs + (EXPERTS ? rows : min(rows, MP)) * x_bytes);
    const bool multiplies = warp < WARPS;  // the others fetch x and add up
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
    int ahead_tile = tile0;
    const u8* source = my_tiles > 0 ? place(tile0) : matrix;
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
                ahead_tile++;
                if (ahead_tiles > 0) source = place(ahead_tile);
#else
                source += to_next_tile - COPY;
#endif
#if BULK
                // The next kernel may come: it finds room where blocks of this one have left.
                if (ahead_tiles == 0) asm volatile("griddepcontrol.launch_dependents;");
#endif
            }
        }
#if !BULK
        asm volatile("cp.async.commit_group;" ::: "memory");
#endif
    };

    auto x_row = [&](int m) {
#if EXPERTS
        return all_rows ? m : member[2 * (member0 + m)];
#else
        return row0 + m;
#endif
    };
#if BULK
    if (multiplies) {
        if (lane == 0)
            for (int i = 0; i < SLOTS; i++) barrier_init(bar + i * 8, 1);
    } else if (warp == WARPS && lane == 0) {
        barrier_init(x_bar, 1);
        for (int i = 0; i < MEETINGS; i++) barrier_init(full + i * 8, S == 1 ? WARPS : 1), barrier_init(empty + i * 8, S * ADDERS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
#endif
    // The matrix does not depend on earlier kernels: its first bytes are on their way before x is complete.
    if (multiplies && count > 0)
#pragma unroll
        for (int i = 0; i < FIRST; i++) fetch(i);
#if BULK
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
    __syncthreads();
    if (warp == WARPS) {
        asm volatile("griddepcontrol.wait;" ::: "memory");
        if (lane == 0) expect(x_bar, my_rows * block_count * 128);
        __syncwarp();
        for (int m = lane; m < my_rows; m += 32)
            bulk_copy(shared_address(xs + m * x_bytes), x + (size_t)x_row(m) * x_stride + block_first * 64,
                      block_count * 128, x_bar);
    }
    if (BEHIND) await(x_bar, 0);
    if (FIRST < SLOTS) {
        if (!BEHIND) __syncthreads();
        if (multiplies && count > 0)
#pragma unroll
            for (int i = FIRST; i < SLOTS; i++) fetch(i);
    }
    if (!BEHIND) await(x_bar, 0);
#else
    for (int i = thread; i < my_rows * block_count * 8; i += THREADS) {
        const int m = i / (block_count * 8), c = i % (block_count * 8);
        *(uint4*)(xs + m * x_bytes + c * 16) =
            *(const uint4*)(x + (size_t)x_row(m) * x_stride + block_first * 64 + c * 8);
    }
    __syncthreads();
#endif
    // The owner of outputs [rank * TNS, (rank + 1) * TNS) of a tile adds their P parts in the order of K.
    auto rows_of = [&](int tile) {
#if EXPERTS
        return table[tile / tiles_each * 3 + 2];
#else
        return my_rows;
#endif
    };
    auto add_up = [&](int tile, const float* parts, int from, int step) {
#if EXPERTS
        const int* item = table + tile / tiles_each * 3;
        const int local = tile % tiles_each;
#else
        const int local = tile;
#endif
        const int count_here = rows_of(tile);
        constexpr int QUADS = TNS / 4;
        const int total = QUADS * count_here;
        // With gates lanes exchange halves, so that a warp's lanes all go on to the end.
        for (int e = from; (GATED ? e - lane : e) < total; e += step) {
            const int i = GATED ? min(e, total - 1) : e, n4 = i % QUADS, m = i / QUADS;
            const float4 s = sum_parts<P>(parts + (n4 >> 2) * SIXTEEN + m * COLUMN + (n4 & 3) * 4, TNS / 16 * SIXTEEN);
#if EXPERTS
            const int row = member[2 * (item[1] + m) + 1];
#else
            const int row = row0 + m;
#endif
            const int out = local * TN + rank * TNS + n4 * 4;
            store_results(y, (size_t)row * y_stride, out, s, outputs, (y_stride & 3) == 0, e < total);
        }
    };

#if BULK
    bool met = false;  // whether every barrier of the cluster is known to be ready
    auto meet_cluster = [&]() {
        if (!met) asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
        met = true;
    };
    if (!multiplies) {
        meet_cluster();
        for (int i = 0; i < my_tiles; i++) {
            const int at = i % MEETINGS;
            const int tile = tile0 + i * tile_step;
            if (S > 1 && lane == 0 && warp == WARPS) expect(full + at * 8, P * (TNS / 16) * COLUMN * 4 * rows_of(tile));
            await(full + at * 8, i / MEETINGS & 1);
            add_up(tile, meeting + at * MEETING, (warp - WARPS) * 32 + lane, 32 * ADDERS);
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
        x_at[m] = xs + min(m * 8 + r, max(my_rows, 1) - 1) * x_bytes + q * 32 + (first - block_first) * 128;
    auto read_x = [&](uint4 (&v)[MT][2], int group) {
#pragma unroll
        for (int m = 0; m < MT; m++)
            v[m][0] = *(const uint4*)(x_at[m] + group * 128), v[m][1] = *(const uint4*)(x_at[m] + group * 128 + 16);
    };
    // Short parts of K keep x in registers, which saves most of what is read from shared memory.
    uint4 kept[KEPT ? KEPT : 1][MT][2];
    if (KEPT && my_products > 0) {
#pragma unroll
        for (int g = 0; g < KEPT; g++) read_x(kept[g], min(g, max(count, 1) - 1));
    }

    int slot = 0;
    u32 phase = 0;
    for (int i = 0; i < my_products; i++) {
        float sum[RT][MT][4] = {};
#if EXPERTS
        {  // the columns of this product are the item's members
            const int* item = table + (tile0 + i) / tiles_each * 3;
            const int mine = item[1] + min(r, item[2] - 1), at = all_rows ? member[2 * mine] : mine - member0;
            x_at[0] = xs + at * x_bytes + q * 32 + (first - block_first) * 128;
        }
#endif
#if BULK
        auto next_copy = [&]() { await(bar + slot * 8, phase); };
#else
        auto next_copy = [&]() {
            asm volatile("cp.async.wait_group %0;" ::"n"(SLOTS - 1) : "memory");
            __syncwarp();
        };
#endif
        auto done_copy = [&]() {
            __syncwarp();
            fetch(slot);
            if (++slot == SLOTS) slot = 0, phase ^= 1;
        };
        if (KEPT) {
#pragma unroll
            for (int c = 0; c * CG < PART; c++) {
                if (c * CG >= count || !multiplies) break;
                next_copy();
                const u8* at = ring + slot * SLOT;
#pragma unroll
                for (int j = 0; j < CG && c * CG + j < PART; j++) {
                    const int g = c * CG + j;
                    if (g == PART - 1 && g >= count) continue;
                    if (g < KEPT) {
                        add_group(sum, at + j * BLOCK, kept[min(g, KEPT - 1)], lane);
                    } else {
                        uint4 v[MT][2];
                        read_x(v, g), add_group(sum, at + j * BLOCK, v, lane);
                    }
                }
                done_copy();
            }
        } else {
            for (int c = 0; c < copies && multiplies; c++) {
                next_copy();
                const u8* at = ring + slot * SLOT;
                const int g0 = c * CG, left = count - g0;
                uint4 v[MT][2];
                if (left >= CG) {
#pragma unroll
                    for (int j = 0; j < CG; j++) read_x(v, g0 + j), add_group(sum, at + j * BLOCK, v, lane);
                } else {
                    for (int j = 0; j < left; j++) read_x(v, g0 + j), add_group(sum, at + j * BLOCK, v, lane);
                }
                done_copy();
            }
        }
        const int meet = i % MEETINGS;
#if BULK
        if (i >= MEETINGS) await(empty + meet * 8, (i / MEETINGS - 1) & 1);
        // A block that shares with no other writes where its parts meet.
        float* mine = S == 1 ? meeting + meet * MEETING + (wk * (TN / 16) + wn * RT) * SIXTEEN
                             : meeting + MEETINGS * MEETING + (meet * WARPS + warp) * (RT * SIXTEEN);
#else
        __syncthreads();
        float* mine = meeting + (wk * TN / 16 + wn * RT) * SIXTEEN;
#endif
        if (multiplies) {
            const u32 to = shared_address(mine + 2 * q * COLUMN + r);
#pragma unroll
            for (int t = 0; t < RT; t++)
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        store_shared(to + (t * SIXTEEN + (m * 8 + (i & 1)) * COLUMN + (i >> 1) * 8) * 4, sum[t][m][i]);
        }
#if BULK
        if (S > 1) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        meet_cluster();
        if (S == 1) {
            if (lane == 0 && multiplies) arrive_here(full + meet * 8);
        } else if (lane < RT) {  // 16 outputs a lane, to the block that owns them
            const int n = (wn * RT + lane) * 16, owner = n / TNS;
            bulk_send(there(shared_address(meeting + meet * MEETING + (part * (TNS / 16) + n % TNS / 16) * SIXTEEN), owner),
                      shared_address(mine + lane * SIXTEEN), rows_of(tile0 + i * tile_step) * COLUMN * 4,
                      there(full + meet * 8, owner));
        }
#else
        __syncthreads();
        add_up(tile0 + i * tile_step, meeting, thread, THREADS);
#endif
    }
#if BULK
    // No block's memory goes before everything sent from it and to it has arrived, which the adding warps know.
    meet_cluster();
    asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
#endif
}
