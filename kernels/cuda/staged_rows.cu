// Rows of bf16 times a quantized matrix on sm_90a: y[m][n] = sum over k of x[m][k] * w[n][k], up to 64 rows at a time.
//
// A cluster of P blocks has a tile of 16 T outputs, and K is cut into P parts, by (K, P) alone: one for each block. Weights
// are decoded into shared memory, once for 64 rows, and the matrix unit reads both of its operands there: x is its A operand
// (64 rows), weights are its B operand. Unlike wide_rows.cu a block keeps no x, of which long parts have too much: x comes
// with the weights, 64 inputs at a time. In a block:
//
//   DECODERS warps    fetch codes, each its own, and turn them into bf16 in a stage of 64 inputs; lay x beside them
//   C warpgroups      multiply what a stage holds, 64 rows x N outputs each; sums in registers
//   all               when K is through: sums lie where stages were, and each block adds up its share of rows
//
// Exactness: weights are bf16 numbers, each rounded once; an output's additions depend on (K, P) only, and are those of
// affine_rows.cu: a chain of products over each part of K, inputs sixteen at a time in the order of affine_pack.py, then the
// parts in order. Rows are rows of A and never mix; N, C, SLOTS, STAGES and the number of rows move work, not bits.
//
// Packed matrix: see affine_pack.py. Fixed while compiling: BITS (4, 5, 6, 8; 16 is bf16), N (outputs of a warpgroup), NQ (N
// in eights), LAST (NQ - 1), C (warpgroups that multiply: 1 or 2), PARTS (P), DECODERS (warps that decode), SETS (of them,
// that take groups in turn), SLOTS (groups that a warp has on their way), STAGES, GATED (1: see row_codes.cuh), WIDE (1: float32
// results).
#include "row_codes.cuh"

constexpr int OUT = N * C, T = OUT / 16, MP = 64;  // outputs of a tile, also in sixteens; rows
// Decoding warps of a set, and the most sixteens of outputs that one of them decodes.
constexpr int EACH = DECODERS / SETS, UNITS = (T + EACH - 1) / EACH;
constexpr int THREADS = 128 * C + 32 * DECODERS;
constexpr int STAGE = T * 2048 + MP * 128, SLOT = UNITS * BLOCK;  // bytes: 64 inputs of weights and of x; a warp's codes
constexpr int LAID = OUT + 8;  // floats of a row of sums: eight more put neighbours on other banks
static_assert(N == 8 * NQ && LAST == NQ - 1 && NQ <= 32 && OUT % 16 == 0, "outputs of a warpgroup");
static_assert(MP * LAID * 4 <= STAGES * STAGE, "sums lie where the stages were");
// A set comes to a stage again only after it has waited for what the stage held two rounds before.
static_assert(STAGES >= SETS, "a stage for every set, or rounds are taken for each other");

#define D0 "%3,%4,%5,%6"
#define D1 D0 ",%7,%8,%9,%10"
#define D2 D1 ",%11,%12,%13,%14"
#define D3 D2 ",%15,%16,%17,%18"
#define D4 D3 ",%19,%20,%21,%22"
#define D5 D4 ",%23,%24,%25,%26"
#define D6 D5 ",%27,%28,%29,%30"
#define D7 D6 ",%31,%32,%33,%34"
#define D8 D7 ",%35,%36,%37,%38"
#define D9 D8 ",%39,%40,%41,%42"
#define D10 D9 ",%43,%44,%45,%46"
#define D11 D10 ",%47,%48,%49,%50"
#define D12 D11 ",%51,%52,%53,%54"
#define D13 D12 ",%55,%56,%57,%58"
#define D14 D13 ",%59,%60,%61,%62"
#define D15 D14 ",%63,%64,%65,%66"
#define D16 D15 ",%67,%68,%69,%70"
#define D17 D16 ",%71,%72,%73,%74"
#define D18 D17 ",%75,%76,%77,%78"
#define D19 D18 ",%79,%80,%81,%82"
#define D20 D19 ",%83,%84,%85,%86"
#define D21 D20 ",%87,%88,%89,%90"
#define D22 D21 ",%91,%92,%93,%94"
#define D23 D22 ",%95,%96,%97,%98"
#define D24 D23 ",%99,%100,%101,%102"
#define D25 D24 ",%103,%104,%105,%106"
#define D26 D25 ",%107,%108,%109,%110"
#define D27 D26 ",%111,%112,%113,%114"
#define D28 D27 ",%115,%116,%117,%118"
#define D29 D28 ",%119,%120,%121,%122"
#define D30 D29 ",%123,%124,%125,%126"
#define D31 D30 ",%127,%128,%129,%130"
#define R(m) "+f"(d[m][0]), "+f"(d[m][1]), "+f"(d[m][2]), "+f"(d[m][3])
#define R0 R(0)
#define R1 R0, R(1)
#define R2 R1, R(2)
#define R3 R2, R(3)
#define R4 R3, R(4)
#define R5 R4, R(5)
#define R6 R5, R(6)
#define R7 R6, R(7)
#define R8 R7, R(8)
#define R9 R8, R(9)
#define R10 R9, R(10)
#define R11 R10, R(11)
#define R12 R11, R(12)
#define R13 R12, R(13)
#define R14 R13, R(14)
#define R15 R14, R(15)
#define R16 R15, R(16)
#define R17 R16, R(17)
#define R18 R17, R(18)
#define R19 R18, R(19)
#define R20 R19, R(20)
#define R21 R20, R(21)
#define R22 R21, R(22)
#define R23 R22, R(23)
#define R24 R23, R(24)
#define R25 R24, R(25)
#define R26 R25, R(26)
#define R27 R26, R(27)
#define R28 R27, R(28)
#define R29 R28, R(29)
#define R30 R29, R(30)
#define R31 R30, R(31)
#define LIST_OF(kind, last) kind##last
#define LIST(kind, last) LIST_OF(kind, last)
#define TEXT_OF(n) #n
#define TEXT(n) TEXT_OF(n)
// 64 rows x 16 inputs times 16 inputs x N outputs, both in shared memory; `adds` 0: a sum that starts. What is given is marked
// as changed only so that sums are numbered from 3, however many there are.
__device__ __forceinline__ void multiply(float (&d)[NQ][4], u32 rows, u32 weights, int adds) {
    u64 a = (u64)(1 << 30 | 64) << 32 | rows, b = (u64)(1 << 30 | 64) << 32 | weights;  // rows of 128 bytes, swizzled
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nwgmma.mma_async.sync.aligned.m64n" TEXT(N)
                 "k16.f32.bf16.bf16 {" LIST(D, LAST) "}, %0, %1, p, 1, 1, 0, 0;\n}"
                 : "+l"(a), "+l"(b), "+r"(adds), LIST(R, LAST));
}
__device__ __forceinline__ void store_matrices(u32 to, const u32 (&a)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a[0]), "r"(a[1]), "r"(a[2]),
                 "r"(a[3])
                 : "memory");
}
__device__ __forceinline__ float4 load_there(u32 at) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at));
    return v;
}
// A place in a ring, and whether the ring has been gone round an odd number of times.
template <int SIZE>
struct Turn {
    int at = 0;
    u32 phase = 0;
    __device__ __forceinline__ void next() {
        if (++at == SIZE) at = 0, phase ^= 1;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    staged_rows(const u8* __restrict__ matrix, const u16* __restrict__ x, void* __restrict__ y, int rows, int outputs,
                int groups, int x_stride, int y_stride, int row_blocks) {
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 bars[DECODERS * SLOTS + 3 * STAGES];
    const int thread = threadIdx.x, lane = thread & 31, warp = __shfl_sync(~0u, thread >> 5, 0);
    const int q = lane & 3, r = lane >> 2;
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int tile = blockIdx.x / PARTS / row_blocks, row0 = blockIdx.x / PARTS % row_blocks * MP;
    const int my_rows = min(rows - row0, MP);
    const int first = groups * rank / PARTS, count = groups * (rank + 1) / PARTS - first;

    // Of each warp's slots: its codes are there. Of each stage: its weights are there, its x is; it is multiplied.
    const u32 weights_in = shared_address(bars) + 8 * DECODERS * SLOTS, x_in = weights_in + 8 * STAGES;
    const u32 multiplied = x_in + 8 * STAGES;
    if (thread == 0) {
        for (int i = 0; i < DECODERS * SLOTS; i++) barrier_init(shared_address(bars) + i * 8, 1);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(weights_in + i * 8, EACH), barrier_init(x_in + i * 8, EACH);
            barrier_init(multiplied + i * 8, 4 * C);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    // Rows go round the blocks of a cluster, and each block adds up its own, with all threads. Both branches end with this by
    // themselves: what follows a branch has only as many registers as its poorest.
    auto add_up = [&]() {
        __syncwarp();
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
        const int own = (my_rows - rank + PARTS - 1) / PARTS;
        constexpr int QUADS = OUT / 4;
        const int total = own * QUADS;
        // With gates lanes exchange halves, so that a warp's lanes all go on to the end.
        for (int e = thread; (GATED ? e - lane : e) < total; e += THREADS) {
            const int i = GATED ? min(e, total - 1) : e, m = rank + i / QUADS * PARTS, n = i % QUADS * 4, out = tile * OUT + n;
            const u32 at = shared_address((float*)memory + m * LAID + n);
            float4 part[PARTS];
#pragma unroll
            for (int p = 0; p < PARTS; p++) part[p] = load_there(there(at, p));
            store_results(y, (size_t)(row0 + m) * y_stride, out, in_order(part), outputs, (y_stride & 3) == 0, e < total);
        }
        // No block's memory goes before the others have read it.
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    };

    if (warp >= 4 * C) {
#if C == 2
        asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
#endif
        // Sets of warps take groups in turn, so that one waits while another works. A warp fetches what it decodes: of each
        // group of its set every EACH-th sixteen of outputs. Outputs past the end read the last sixteen again.
        const int worker = warp - 4 * C, mine = worker % EACH, set = worker / EACH, units = (T - mine + EACH - 1) / EACH;
        u8* const ring = memory + STAGES * STAGE + worker * (SLOTS * SLOT);
        const u32 filled = shared_address(bars) + worker * (SLOTS * 8);
        const int tile16 = min(tile * T + mine + lane * EACH, (outputs + 15) / 16 - 1);
        const u8* const source = matrix + ((size_t)tile16 * groups + first) * BLOCK;
        u64 policy;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        int coming = set;  // the next group to be fetched
        Turn<SLOTS> filling;
        auto fetch = [&]() {
            if (coming >= count) return;
            const u32 bar = filled + filling.at * 8;
            if (lane == 0) expect(bar, units * BLOCK);
            __syncwarp();
            const u32 to = shared_address(ring + filling.at * SLOT + lane * BLOCK);
            if (lane < units) bulk_stream(to, source + (size_t)coming * BLOCK, BLOCK, bar, policy);
            filling.next(), coming += SETS;
            // The next kernel may come: it finds room where blocks of this one have left.
            if (coming >= count) asm volatile("griddepcontrol.launch_dependents;");
        };
        // Codes do not depend on earlier kernels, x does. What is asked for first comes first, also where it comes from
        // farther away: so little is asked for before x.
        fetch();
        asm volatile("griddepcontrol.wait;" ::: "memory");
        // 16 rows of x. Input 16 q + 4 s + 2 h + i is column 8 h + 2 q + i of step s, as affine_pack.py has it.
        constexpr int EIGHTS = MP / 8 / EACH;
        const u16 *row[EIGHTS], *const from = x + (first + set) * 64 + q * 16;
#pragma unroll
        for (int h = 0; h < EIGHTS; h++)
            row[h] = from + (size_t)(row0 + min((mine * EIGHTS + h) * 8 + r, my_rows - 1)) * x_stride;
        uint4 v[EIGHTS][2];
        auto read = [&]() {
#pragma unroll
            for (int h = 0; h < EIGHTS; h++) v[h][0] = fresh(row[h]), v[h][1] = fresh(row[h] + 8), row[h] += SETS * 64;
        };
        if (set < count) read();
        for (int i = 1; i < SLOTS; i++) fetch();
        const int matrix_of = lane >> 3, row_of = lane & 7;
        u32 place[4];  // of a lane's row of 8 columns in a sixteen's 2 KB, for each 16 inputs
#pragma unroll
        for (int s = 0; s < 4; s++)
            place[s] = (matrix_of & 1) * 1024 + row_of * 128 + ((((matrix_of >> 1) ^ row_of) << 4) ^ (s << 5));
        Turn<SLOTS> slot;
        Turn<STAGES> stage;
        for (int i = 0; i < set; i++) stage.next();
#pragma unroll 1
        for (int i = set; i < count; i += SETS) {
            const u32 bar = stage.at * 8, to = shared_address(memory) + stage.at * STAGE + mine * 2048;
            const u8* codes = ring + slot.at * SLOT;
            await(filled + slot.at * 8, slot.phase), await(multiplied + bar, stage.phase ^ 1);
#pragma unroll 3
            for (int u = 0; u < units; u++) {
                Group g;
                load(g, codes + u * BLOCK, lane);
                const Factors f = factors(g);
#pragma unroll
                for (int s = 0; s < 4; s++) {
                    u32 a[4];
                    operand(a, g, f, s, codes + u * BLOCK, lane);
                    store_matrices(to + u * (EACH * 2048) + place[s], a);
                }
            }
            __syncwarp();
            if (lane == 0) arrive_here(weights_in + bar);
            u8* const rows_to = memory + stage.at * STAGE + T * 2048 + mine * (EIGHTS * 1024) + r * 128 + q * 4;
#pragma unroll
            for (int h = 0; h < EIGHTS; h++) {
                const u32 w[8] = {v[h][0].x, v[h][0].y, v[h][0].z, v[h][0].w, v[h][1].x, v[h][1].y, v[h][1].z, v[h][1].w};
#pragma unroll
                for (int k = 0; k < 8; k++) *(u32*)(rows_to + h * 1024 + (k ^ r) * 16) = w[k];
            }
            __syncwarp();
            if (lane == 0) arrive_here(x_in + bar);
            if (i + SETS < count) read();
            fetch(), slot.next();
            for (int k = 0; k < SETS; k++) stage.next();
        }
        add_up();
    } else {
#if C == 2
        asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");
#endif
        const int wg = warp >> 2, w = warp & 3;
        // The rank is in the high bits of an address of a cluster; a descriptor has no room for it.
        const u32 base = 1 << 16 | (shared_address(memory) & 0x3FFFF) >> 4;
        Turn<STAGES> stage;
        float sum[NQ][4];
        int before = -1;
#pragma unroll 1
        for (int i = 0; i < count; i++, stage.next()) {
            const u32 here = base + stage.at * (STAGE / 16);
            await(weights_in + stage.at * 8, stage.phase), await(x_in + stage.at * 8, stage.phase);
            // Between what was written and what reads it, as it must be, but on the reader's side: the writer's would wait for
            // x that is still on its way.
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("wgmma.fence.sync.aligned;");
#pragma unroll
            for (int s = 0; s < 4; s++) multiply(sum, here + T * 128 + s * 2, here + wg * (N * 8) + s * 2, s | i);
            asm volatile("wgmma.commit_group.sync.aligned;");
            asm volatile("wgmma.wait_group.sync.aligned 1;");
            if (lane == 0 && before >= 0) arrive_here(multiplied + before * 8);
            before = stage.at;
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;");
#pragma unroll
        for (int m = 0; m < NQ; m++)
#pragma unroll
            for (int j = 0; j < 4; j++) asm volatile("" : "+f"(sum[m][j]));
        // The other warpgroup has multiplied every stage, too, when sums lie here.
        asm volatile("bar.sync 1, %0;" ::"n"(128 * C) : "memory");
        float* laid = (float*)memory + (w * 16 + r) * LAID + wg * N + 2 * q;
#pragma unroll
        for (int m = 0; m < NQ; m++)
            *(float2*)(laid + m * 8) = make_float2(sum[m][0], sum[m][1]),
            *(float2*)(laid + 8 * LAID + m * 8) = make_float2(sum[m][2], sum[m][3]);
        add_up();
    }
}
