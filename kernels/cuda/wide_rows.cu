// Rows of bf16 times a quantized (or bf16) matrix on sm_90a: y[m][n] = sum over k of x[m][k] * w[n][k], up to 64 rows.
//
// A tile is 64 outputs; a cluster of S blocks shares it. K is cut into P = S * C parts, by (K, P) alone; a block has C of
// them. A unit of work is a tile's part; the block's G warpgroups take its units in turn. A warpgroup's 64 outputs are the
// matrix unit's A operand, 16 a warp, decoded in registers; x is its B operand and lies in shared memory for the whole
// launch, in the order in which the unit reads it.
//
//            K: | block 0          | block 1          |  ...  S blocks of one cluster
//               | part 0 | part 1  | part 2 | part 3  |  ...  P = S * C parts; groups of 64 inputs, in order
//   64 outputs  warpgroup: 4 warps x 16
//
// One warp fetches: each warpgroup has a ring of copies in shared memory. The P partial sums of an output meet in the block
// that owns it, where other warps add them in the order of K. Codes of a group are decoded while the products of the group
// before it are under way.
//
// Exactness: weights are bf16 numbers, each rounded once; an output's additions depend on (K, P) only, and are those of
// affine_rows.cu. Rows are columns of B and never mix; NT, G, the split of P into S and C, copies, slots, the grid and the
// number of rows move work, not bits.
//
// Packed matrix: see affine_pack.py. Fixed while compiling: BITS (4, 5, 6, 8; 16 is bf16), NT (tiles of 8 rows: 1, 2, 4 or
// 8), S, C, G, MEETINGS (tiles whose parts may be under way at a time), ADDERS (warps that add up), GATED (1: see
// row_codes.cuh), WIDE (1: float32 results).
#include "row_codes.cuh"

constexpr int WARPS = 4 * G, THREADS = WARPS * 32 + ADDERS * 32 + 32, MP = NT * 8;
constexpr int P = S * C, OWN = 64 / S;  // parts of K; outputs of a tile that one block owns
constexpr int EIGHT = MP * 8;  // floats of a part's rows of 8 outputs, rows outermost: only eights of live rows are sent
constexpr int MEETING = P * OWN * MP;
constexpr int KEPT = C > G ? C / G : 1;  // units of a tile that one warpgroup sends
constexpr int MOST_SLOTS = 8;
constexpr int XGROUP = NT * 1024, XSTEP = 32;  // bytes of x for 64 inputs, to the next 16
static_assert(OWN % 8 == 0, "eights of outputs for every owner");
static_assert(MEETINGS * C % G == 0 && (C <= G || C % G == 0), "a meeting is used again by the warpgroup that used it");

#define D0 "%0,%1,%2,%3"
#define D1 D0 ",%4,%5,%6,%7"
#define D2 D1 ",%8,%9,%10,%11"
#define D3 D2 ",%12,%13,%14,%15"
#define D4 D3 ",%16,%17,%18,%19"
#define D5 D4 ",%20,%21,%22,%23"
#define D6 D5 ",%24,%25,%26,%27"
#define D7 D6 ",%28,%29,%30,%31"
#define O(how, m) how(d[m][0]), how(d[m][1]), how(d[m][2]), how(d[m][3])
#if NT == 1
#define SHAPE "m64n8k16"
#define RESULT D0
#define GIVEN "{%4,%5,%6,%7}, %8"
#define FLAG "%9"
#define RESULTS(how) O(how, 0)
#elif NT == 2
#define SHAPE "m64n16k16"
#define RESULT D1
#define GIVEN "{%8,%9,%10,%11}, %12"
#define FLAG "%13"
#define RESULTS(how) O(how, 0), O(how, 1)
#elif NT == 4
#define SHAPE "m64n32k16"
#define RESULT D3
#define GIVEN "{%16,%17,%18,%19}, %20"
#define FLAG "%21"
#define RESULTS(how) O(how, 0), O(how, 1), O(how, 2), O(how, 3)
#elif NT == 8
#define SHAPE "m64n64k16"
#define RESULT D7
#define GIVEN "{%32,%33,%34,%35}, %36"
#define FLAG "%37"
#define RESULTS(how) O(how, 0), O(how, 1), O(how, 2), O(how, 3), O(how, 4), O(how, 5), O(how, 6), O(how, 7)
#endif
#define PRODUCT(p)                                                                                                   \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " FLAG ", 0;\nwgmma.mma_async.sync.aligned." SHAPE ".f32.bf16.bf16 {" RESULT "}, " GIVEN \
    ", p, 1, 1, 0;\n}"
// 64 outputs x 16 inputs of four warps' registers times 16 inputs x MP rows of shared memory; `adds` 0: a sum that starts.
__device__ __forceinline__ void multiply(float (&d)[NT][4], const u32 (&a)[4], u32 x, int adds) {
    const u64 at = (u64)(1 << 30 | 64) << 32 | x;  // rows of 128 bytes, swizzled; eights of rows 1,024 bytes apart
    asm volatile(PRODUCT(p) : RESULTS("+f") : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(at), "r"(adds));
}
// Where a row lies among those of its part: of each eight even rows first, so that what a warp stores at once falls on all
// banks.
__device__ __forceinline__ int place_of(int row) { return (row & ~7) | (row & 1) << 2 | (row & 7) >> 1; }
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    wide_rows(const u8* __restrict__ matrix, const u16* __restrict__ x, void* __restrict__ y, int rows, int outputs,
              int groups, int x_stride, int y_stride, int x_groups, int row_blocks, int copy, int slots
    ) {
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 bars[2 * G * MOST_SLOTS + 2 * MEETINGS];
    const int thread = threadIdx.x, lane = thread & 31, warp = __shfl_sync(~0u, thread >> 5, 0);
    const int q = lane & 3, r = lane >> 2;
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int block_first = groups * (rank * C) / P, block_count = groups * ((rank + 1) * C) / P - block_first;
    const int clusters = gridDim.x / S / row_blocks, cluster = blockIdx.x / S / row_blocks;
    const int row0 = (blockIdx.x / S % row_blocks) * MP, my_rows = min(rows - row0, MP);
    const int live = (my_rows + 7) / 8, sent_bytes = live * 256;
    const int tiles16 = (outputs + 15) / 16, tiles = (outputs + 63) / 64;
    const int my_tiles = cluster < tiles ? (tiles - 1 - cluster) / clusters + 1 : 0, units = my_tiles * C;
    const int slot_bytes = 4 * copy * BLOCK;

    u8* xs = memory;
    u8* ring = xs + x_groups * XGROUP;
    float* meeting = (float*)(ring + G * slots * slot_bytes);
    float* sent = meeting + MEETINGS * MEETING;
    // Of each slot: its copy is there; its four warps are done. Of each meeting: all parts are there; all owners are done.
    const u32 filled = shared_address(bars), freed = filled + 8 * G * MOST_SLOTS;
    const u32 full = freed + 8 * G * MOST_SLOTS, empty = full + 8 * MEETINGS;
    auto part_first = [&](int column) { return (int)((u32)groups * (rank * C + column) / P); };

    if (thread == 0) {
        for (int i = 0; i < G * MOST_SLOTS; i++) barrier_init(filled + i * 8, 1), barrier_init(freed + i * 8, 4);
        for (int i = 0; i < MEETINGS; i++) barrier_init(full + i * 8, 1), barrier_init(empty + i * 8, S * ADDERS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");

    // The warp that fetches, a lane for each 16 outputs of a tile; outputs past the end read the last 16 again. The matrix
    // does not depend on earlier kernels: its first bytes are on their way before x is complete.
    const bool fetches = warp == WARPS + ADDERS;
    int unit0 = 0, done0 = 0, slot_of[G] = {};
    u32 phase_of[G];
#pragma unroll
    for (int g = 0; g < G; g++) phase_of[g] = 1;
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    auto fetch = [&](int most) {
        for (; unit0 < units; unit0 += G, done0 = 0)
            for (; done0 * P < groups + P; done0 += copy) {
                if (most-- == 0) return;
#pragma unroll
                for (int g = 0; g < G; g++) {
                    const int unit = unit0 + g;
                    if (unit >= units) break;
                    const int first = part_first(unit % C), n = min(part_first(unit % C + 1) - first - done0, copy);
                    if (n <= 0) continue;
                    const u32 bar = filled + (g * MOST_SLOTS + slot_of[g]) * 8;
                    await(bar + 8 * G * MOST_SLOTS, phase_of[g]);
                    if (lane == 0) expect(bar, 4 * n * BLOCK);
                    __syncwarp();
                    if (lane < 4) {
                        const int tile16 = min((cluster + unit / C * clusters) * 4 + lane, tiles16 - 1);
                        bulk_stream(shared_address(ring + (g * slots + slot_of[g]) * slot_bytes + lane * copy * BLOCK),
                                    matrix + ((size_t)tile16 * groups + first + done0) * BLOCK, n * BLOCK, bar, policy);
                    }
                    if (++slot_of[g] == slots) slot_of[g] = 0, phase_of[g] ^= 1;
                }
            }
        // The next kernel may come: it finds room where blocks of this one have left.
        asm volatile("griddepcontrol.launch_dependents;");
    };
    // What is asked for first comes first, also where it comes from farther away: so little is asked for before x.
    if (fetches) fetch(1);
    asm volatile("griddepcontrol.wait;" ::: "memory");

    // x, a warp 8 rows of a group at a time: into the order of the B operand (input 16 q + 4 s + 2 h + i is column 8 h + 2 q
    // + i of step s, as affine_pack.py has it).
    const int items = block_count * live;
    constexpr int AT_ONCE = 4, STAGERS = WARPS + ADDERS;
    for (int base = warp; base < items && warp < STAGERS; base += STAGERS * AT_ONCE) {
        uint4 v[AT_ONCE][2];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const int i = min(base + u * STAGERS, items - 1), g = i / live, row = min(i % live * 8 + r, my_rows - 1);
            const uint4* from = (const uint4*)(x + (size_t)(row0 + row) * x_stride + (block_first + g) * 64 + q * 16);
            v[u][0] = fresh(from), v[u][1] = fresh(from + 1);
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const int i = base + u * STAGERS, g = i / live, m = i % live;
            const u32 w[8] = {v[u][0].x, v[u][0].y, v[u][0].z, v[u][0].w, v[u][1].x, v[u][1].y, v[u][1].z, v[u][1].w};
            u8* to = xs + g * XGROUP + (m * 1024 + r * 128) + q * 4;
            if (i < items)
#pragma unroll
                for (int k = 0; k < 8; k++) *(u32*)(to + (k ^ r) * 16) = w[k];
        }
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    bool met = false;  // whether every barrier of the cluster is known to be ready
    auto meet_cluster = [&]() {
        if (!met) asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
        met = true;
    };

    if (fetches) {
        fetch(1 << 30);
    } else if (warp >= WARPS) {
        meet_cluster();
        // The owner of outputs [rank * OWN, (rank + 1) * OWN) of a tile adds their P parts in the order of K.
#pragma unroll 1
        for (int i = 0; i < my_tiles; i++) {
            const int at = i % MEETINGS, adder = warp - WARPS;
            if (adder == 0 && lane == 0) expect(full + at * 8, P * (OWN / 8) * sent_bytes);
            await(full + at * 8, i / MEETINGS & 1);
            const float* parts = meeting + at * MEETING;
            const int out0 = (cluster + i * clusters) * 64 + rank * OWN;
            constexpr int QUADS = OWN / 4;
            const int total = QUADS * my_rows;
            // With gates lanes exchange halves, so that a warp's lanes all go on to the end.
#pragma unroll 2
            for (int e = adder * 32 + lane; (GATED ? e - lane : e) < total; e += ADDERS * 32) {
                const int j = GATED ? min(e, total - 1) : e, n4 = j % QUADS, m = j / QUADS, out = out0 + n4 * 4;
                const float4 t = sum_parts<P>(parts + (n4 >> 1) * EIGHT + place_of(m) * 8 + (n4 & 1) * 4, OWN * MP);
                store_results(y, (size_t)(row0 + m) * y_stride, out, t, outputs, (y_stride & 3) == 0, e < total);
            }
            __syncwarp();
            // Told only to blocks that wait for it: a block may end once its own parts are sent.
            const bool awaited = i * C + G * KEPT < units || i + MEETINGS < my_tiles;
            if (awaited && lane < S) arrive_there(there(empty + at * 8, lane));
        }
    } else {
        const int wg = (u32)warp / 4, w = warp & 3, mine_at = q * 8 + r;
        // The rank is in the high bits of an address of a cluster; a descriptor has no room for it.
        const u32 x_first = 1 << 16 | (shared_address(xs) & 0x3FFFF) >> 4;
        int slot = 0, turn = 0;
        u32 phase = 0;
        float sum[NT][4] = {};
        u32 a[3][4][4];
#pragma unroll 1
        for (int unit = wg; unit < units; unit += G, turn++) {
            const int tile = (u32)unit / C, column = (u32)unit % C, first = part_first(column);
            int left = part_first(column + 1) - first, adds = 0;
            u32 x_now = x_first + (first - block_first) * (XGROUP / 16);
            if (left == 0) {
#pragma unroll
                for (int m = 0; m < NT; m++)
#pragma unroll
                    for (int i = 0; i < 4; i++) sum[m][i] = 0.f;
            }
            // Products of a group, under way from here on; those of all but this one are complete.
            auto add_group = [&](u32 (&a)[4][4], const Group& g, const u8* at) {
                const Factors f = factors(g);
#pragma unroll
                for (int s = 0; s < 4; s++) {
                    operand(a[s], g, f, s, at, lane);
                    // Made before the fence: what is written behind it would be waited for.
                    asm volatile("" : "+r"(a[s][0]), "+r"(a[s][1]), "+r"(a[s][2]), "+r"(a[s][3]));
                }
                asm volatile("wgmma.fence.sync.aligned;");
#pragma unroll
                for (int s = 0; s < 4; s++) multiply(sum, a[s], x_now + s * (XSTEP / 16), s ? 1 : adds);
                asm volatile("wgmma.commit_group.sync.aligned;");
                asm volatile("wgmma.wait_group.sync.aligned 1;");
                x_now += XGROUP / 16, adds = 1;
            };
#pragma unroll 1
            for (; left > 0; left -= copy) {
                const u32 bar = filled + (wg * MOST_SLOTS + slot) * 8;
                await(bar, phase);
                const u8* at = ring + (wg * slots + slot) * slot_bytes + w * copy * BLOCK;
                Group even, odd;  // read a group ahead
                load(even, at, lane);
                int here = min(left, copy);
                const bool is_alone = here == 1;
#pragma unroll 1
                for (; here > 1; here -= 2, at += 2 * BLOCK) {
                    load(odd, at + BLOCK, lane);
                    add_group(a[0], even, at);
                    if (here > 2) load(even, at + 2 * BLOCK, lane);
                    add_group(a[1], odd, at + BLOCK);
                }
                // The group that is left over has registers of its own, since the next copy begins with the first ones while it is
                // read. A copy of one group may follow such a copy, so it waits.
                if (is_alone) asm volatile("wgmma.wait_group.sync.aligned 0;");
                if (here > 0) add_group(a[2], even, at);
                __syncwarp();
                if (lane == 0) arrive_here(bar + 8 * G * MOST_SLOTS);
                if (++slot == slots) slot = 0, phase ^= 1;
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;");
#pragma unroll
            for (int m = 0; m < NT; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) asm volatile("" : "+f"(sum[m][i]));
            // What was sent from here before has been added, and so has what lies where this goes.
            const int meet = tile % MEETINGS;
            if (unit >= G * KEPT) {
                const int before = (unit - G * KEPT) / C;
                await(empty + before % MEETINGS * 8, before / MEETINGS & 1);
            }
            if (tile >= MEETINGS) await(empty + meet * 8, (tile / MEETINGS - 1) & 1);
            float* mine = sent + ((wg * KEPT + turn % KEPT) * 8 + w * 2) * EIGHT;
            meet_cluster();
            const u32 to = shared_address(mine + mine_at);
#pragma unroll
            for (int m = 0; m < NT; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    store_shared(to + ((i >> 1) * EIGHT + m * 64 + (i & 1) * 32) * 4, sum[m][i]);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            __syncwarp();
            if (lane < 2) {  // 8 outputs a lane, to the block that owns them
                const int eight = w * 2 + lane, owner = eight / (OWN / 8), part = rank * C + column;
                bulk_send(there(shared_address(meeting + meet * MEETING + (part * (OWN / 8) + eight % (OWN / 8)) * EIGHT), owner),
                          shared_address(mine + lane * EIGHT), sent_bytes, there(full + meet * 8, owner));
            }
        }
    }
    // No block's memory goes before everything sent from it and to it has arrived, which the adding warps know.
    __syncwarp();
    meet_cluster();
    asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}
