// Gated delta steps of lanes by their schedules: S <- a S + k d^T with d = beta (v - a S^T k), and y = S^T q.
//
// A warp owns some columns of one head's state [KEYS, VALUES] and keeps them in registers: a thread has EACH keys of
// COLUMNS neighbouring columns. No warp needs another's numbers, so no step meets a barrier; warps of a block have
// nothing in common but their multiprocessor.
//
//   sums over keys   multiply-adds over a thread's own keys, then halves of the columns are exchanged until each thread
//                    has one column's sums, then sums of neighbours: one order for every launch
//   a step           S^T k and S^T q from one pass; y = a S^T q + (k . q) d follows, no second pass reads the new state
//   its inputs       copied to shared memory AHEAD steps before, which no register and no load waits for
//
// A step is one warp's chain of dependent instructions, and nothing else runs on its scheduler: what is needed next is
// loaded a step before, and what waits for nothing (the decay of the state) stands where sums are under way.
//
// A schedule is int32 [lanes, most, 3]: the ring row whose inputs are taken, the row of `out` that gets the result (-1:
// none), and flags. Started early, a warp reads its schedule and its state before it waits: a layer's states are moved
// on by its own steps alone, once a round, and the copy of a round's integers stands between two rounds.
//
// Launches of few lanes have warps of any heads in a block, as many as leave no multiprocessor two blocks. Launches of many
// lanes move more states than wait for steps: with TILE a block is a whole head, whose state comes and goes through shared
// memory in copies of 8 keys, which are neighbours in memory (by single warps, 64 bytes of every 512: 7% slower).
//
// Macros: HEADS and KEY_HEADS, KEYS and VALUES of a head, EACH and COLUMNS of a thread (powers of two), WARPS of a block,
// AHEAD (rows that are copied before their step), WIDE (results are float32, else bf16), TILE.

#define RESET 1
#define COMMIT 2
#define SAVE 4
#define RETURN 8

#define LANES (KEYS / EACH)                 // threads that share a column
#define RUNS (EACH / 8)                     // neighbouring keys come in eights: thread t has those at 8 t + 8 LANES r
#define MEMBERS (LANES / COLUMNS)           // of the threads of a column, those that hold its sums in the end
#define OWN (32 / LANES * COLUMNS)          // columns of a warp
#define HELD (OWN < VALUES ? OWN : VALUES)  // of them, those that there are
#define SLICES ((VALUES + OWN - 1) / OWN)   // warps of a head
#define SIZE (KEYS * VALUES)
#define CHANNELS (2 * KEY_HEADS * KEYS + HEADS * VALUES)
#define FEW 8                               // launches of so many steps let the next one in at once, others
#define LAST 4                              // before their last few
#define CHUNK (8 * VALUES + 4)              // floats from 8 keys of a tile to the next: no two lie in the same banks
#define BULK (TILE && __CUDA_ARCH__ >= 900)

// A row as it lies in shared memory, in pieces of 16 bytes: q, k, the values of the warp's columns, the head's factors.
#define SHARE (KEYS / 8)
#define PIECES (2 * SHARE + HELD / 8 + 2)
#define TURNS ((PIECES + 31) / 32)

typedef unsigned int u32;
typedef unsigned short u16;
typedef float State[EACH][COLUMNS];

static __device__ __forceinline__ u32 shared_address(const void *at) { return (u32)__cvta_generic_to_shared(at); }

static __device__ __forceinline__ void wait_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ void let_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Makes a condition of a whole warp a branch: otherwise every step issues all loads and stores in it, switched off.
static __device__ __forceinline__ void branch() {
#if WARPS > 1
    __syncwarp();
#else
    asm volatile("bar.sync 1, 32;" ::: "memory");
#endif
}

#if WIDE
typedef float Result;
static __device__ __forceinline__ void put(Result *at, float value, bool is_wanted) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.f32 [%0], %1;}" ::"l"(at), "f"(value), "r"((u32)is_wanted)
                 : "memory");
}
#else
typedef u16 Result;
static __device__ __forceinline__ void put(Result *at, float value, bool is_wanted) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.b16 [%0], %1;}" ::"l"(at), "h"(bits), "r"((u32)is_wanted)
                 : "memory");
}
#endif

// What a step reads of its row: queries and keys of this thread's keys, the value of the column that it finishes, and
// the head's factors as conv.py leaves them: what is kept, that times the scale of k, beta, the scale of k, what is kept
// times the scale of q, the product of k and q.
struct Row {
    uint4 q[RUNS], k[RUNS];
    u16 v;
    float4 first;
    float2 rest;

    __device__ __forceinline__ void load(const uint4 *at, int within, int value) {
#pragma unroll
        for (int run = 0; run < RUNS; ++run) {
            q[run] = at[run * LANES + within];
            k[run] = at[SHARE + run * LANES + within];
        }
        v = ((const u16 *)(at + 2 * SHARE))[value];
        first = *(const float4 *)(at + PIECES - 2);
        rest = *(const float2 *)(at + PIECES - 1);
    }
};

static __device__ __forceinline__ void widened(const uint4 *from, float *to) {
#pragma unroll
    for (int run = 0; run < RUNS; ++run) {
        const u32 pairs[4] = {from[run].x, from[run].y, from[run].z, from[run].w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            to[8 * run + 2 * i] = __uint_as_float(pairs[i] << 16);
            to[8 * run + 2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
        }
    }
}

// Where number j of a thread's keys lies behind its first, in memory and in a tile.
static __device__ __forceinline__ constexpr int down(int j) { return (j / 8 * 8 * LANES + j % 8) * VALUES; }
#if BULK
static __device__ __forceinline__ constexpr int down_tile(int j) { return j / 8 * LANES * CHUNK + j % 8 * VALUES; }
#endif

template <int (*DOWN)(int)> static __device__ __forceinline__ void read(State &now, const float *from) {
#pragma unroll
    for (int j = 0; j < EACH; ++j)
#pragma unroll
        for (int c = 0; c < COLUMNS; c += COLUMNS < 4 ? 1 : 4)
#if COLUMNS < 4
            now[j][c] = from[DOWN(j) + c];
#else
            *(float4 *)&now[j][c] = *(const float4 *)(from + DOWN(j) + c);
#endif
}

template <int (*DOWN)(int)> static __device__ __forceinline__ void write(float *to, const State &now) {
#pragma unroll
    for (int j = 0; j < EACH; ++j)
#pragma unroll
        for (int c = 0; c < COLUMNS; c += COLUMNS < 4 ? 1 : 4)
#if COLUMNS < 4
            to[DOWN(j) + c] = now[j][c];
#else
            *(float4 *)(to + DOWN(j) + c) = make_float4(now[j][c], now[j][c + 1], now[j][c + 2], now[j][c + 3]);
#endif
}

// Both sums of the column that this thread finishes, out of its share of all COLUMNS: halves are exchanged first.
static __device__ __forceinline__ void gather(float *seen, float *asked, int within) {
#pragma unroll
    for (int count = COLUMNS / 2, apart = LANES / 2; count > 0; count /= 2, apart /= 2) {
        const bool upper = within & apart;
#pragma unroll
        for (int c = 0; c < count; ++c) {
            const float give_seen = upper ? seen[c] : seen[c + count], own_seen = upper ? seen[c + count] : seen[c];
            const float give_asked = upper ? asked[c] : asked[c + count], own_asked = upper ? asked[c + count] : asked[c];
            seen[c] = __fadd_rn(own_seen, __shfl_xor_sync(~0u, give_seen, apart));
            asked[c] = __fadd_rn(own_asked, __shfl_xor_sync(~0u, give_asked, apart));
        }
    }
#pragma unroll
    for (int apart = MEMBERS / 2; apart > 0; apart /= 2) {
        seen[0] = __fadd_rn(seen[0], __shfl_xor_sync(~0u, seen[0], apart));
        asked[0] = __fadd_rn(asked[0], __shfl_xor_sync(~0u, asked[0], apart));
    }
}

#if BULK
// The state behind the last step, by way of the tile, to where it is wanted; all warps of the block come here.
static __device__ __forceinline__ void leave(
    const State &now, float *own_tile, const float *tile, bool is_real, float *committed, float *aside
) {
    if (is_real) write<down_tile>(own_tile, now);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x != 0) return;
#pragma unroll 1
    for (int chunk = 0; chunk < KEYS / 8; ++chunk) {
        const u32 from = shared_address(tile + chunk * CHUNK), bytes = 32 * VALUES;
        if (committed)
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(committed + chunk * 8 * VALUES),
                         "r"(from), "r"(bytes)
                         : "memory");
        if (aside)
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(aside + chunk * 8 * VALUES),
                         "r"(from), "r"(bytes)
                         : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
#endif

extern "C" __global__ __launch_bounds__(32 * WARPS, TILE ? 2 : 1) void delta_steps(
    float *state, const u16 *mixed, const float *factors, const int *schedule, const int *counts, const int *places,
    const int *lanes, int by_row, Result *out, int most, int ring
) {
    // With TILE a head's state and a barrier; of each warp its plan, as int4 [most], then AHEAD + 1 rows.
    extern __shared__ __align__(128) uint4 whole_room[];
#if BULK
    float *const tile = (float *)whole_room;
    uint4 *const room = whole_room + KEYS / 8 * CHUNK / 4 + 1;
    const u32 filled = shared_address(room - 1);
#else
    uint4 *const room = whole_room;
#endif
    const int thread = threadIdx.x % 32, warp = WARPS > 1 ? threadIdx.x / 32 : 0, within = thread % LANES;
    int4 *const plan = (int4 *)(room + warp * (most + (AHEAD + 1) * PIECES));
    uint4 *const rows = (uint4 *)(plan + most);
    const int turn_of = blockIdx.x * WARPS + warp, head = turn_of / SLICES;
    const int first = turn_of % SLICES * OWN, own = thread / LANES * COLUMNS;
    // A row's warps take its lane where no row before has the same.
    int lane = blockIdx.y;
    bool is_other = false;
    if (by_row) {
        lane = lanes[blockIdx.y];
        is_other = blockIdx.y > 0 && lanes[blockIdx.y - 1] == lane;
    }
    // None of these loads waits for another.
    const int *const planned = schedule + lane * most * 3, *const mine_of_plan = planned + 3 * min(thread, most - 1);
    const int steps = is_other ? 0 : counts[lane];
    const int committed_at = places[2 * lane], aside_at = places[2 * lane + 1];
    const int4 entry = make_int4(mine_of_plan[0], mine_of_plan[1], mine_of_plan[2], 0);
    const int first_source = planned[0];
    if (steps == 0) {
        let_next();
        wait_before();
        return;
    }
    const bool is_real = own < HELD;
    const int column = is_real ? own : 0;
    float *const committed_head = state + (long long)(committed_at * HEADS + head) * SIZE;
    float *const aside_head = state + (long long)(aside_at * HEADS + head) * SIZE;
    const u32 at = within * 8 * VALUES + first + column;
    float *const committed = committed_head + at, *const aside = aside_head + at;
    State now;
#if BULK
    float *const own_tile = tile + within * CHUNK + first + column;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(filled) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(filled), "r"(SIZE * 4) : "memory");
#pragma unroll 1
        for (int chunk = 0; chunk < KEYS / 8; ++chunk)
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                    shared_address(tile + chunk * CHUNK)
                ),
                "l"(committed_head + chunk * 8 * VALUES), "r"(32 * VALUES), "r"(filled)
                : "memory"
            );
    }
#endif
#if !BULK
    read<down>(now, committed);
#endif
    plan[min(thread, most - 1)] = entry;
#pragma unroll 1
    for (int i = thread + 32; i < steps; i += 32) plan[i] = make_int4(planned[3 * i], planned[3 * i + 1], planned[3 * i + 2], 0);
    // Of its COLUMNS columns a thread finishes that which the exchanges leave it.
    const int mine = column + within / MEMBERS;
    const int key_head = head / (HEADS / KEY_HEADS), first_row = lane * ring;
    // Numbers of a ring row: this thread's pieces of q and k, then of the values; the rest are factors.
    const char *from[TURNS];
    u32 apart[TURNS];
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const int piece = thread + 32 * turn;
        int number = key_head * KEYS + 8 * piece + (piece < SHARE ? 0 : (KEY_HEADS - 1) * KEYS);
        if (piece >= 2 * SHARE) number = 2 * KEY_HEADS * KEYS + head * VALUES + first + 8 * (piece - 2 * SHARE);
        const bool is_factor = piece >= PIECES - 2;
        from[turn] = (const char *)(mixed + (long long)first_row * CHANNELS + number);
        if (is_factor) from[turn] = (const char *)(factors + (first_row * HEADS + head) * 8 + 4 * (piece - PIECES + 2));
        apart[turn] = is_factor ? HEADS * 32 : CHANNELS * 2;
    }
    const u32 target = shared_address(rows + thread);
    // Copies row `source` of the ring to the place of step i.
    const auto ask = [&](int i, u32 source, bool is_wanted) {
        const u32 into = target + i % (AHEAD + 1) * (PIECES * 16);
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const bool has_piece = 32 * turn + 32 <= PIECES || thread + 32 * turn < PIECES;
            asm volatile(
                "{.reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16;}" ::"r"(into + 512 * turn),
                "l"(from[turn] + source * apart[turn]), "r"((u32)(is_wanted && has_piece))
                : "memory"
            );
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    // The copies of row i have ended; those behind it may be under way.
    const auto arrived = [&](int i, Row &row) {
        asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
        __syncwarp();
        row.load(rows + i % (AHEAD + 1) * PIECES, within, mine);
    };
    Result *const to = out + head * VALUES + first + mine;
    const bool tells = is_real && within % MEMBERS == 0;
#if BULK
    __syncthreads();  // the barrier is made
    asm volatile(
        "{.reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra again;}" ::"r"(filled) : "memory"
    );
    read<down_tile>(now, own_tile);
#else
    __syncwarp();
#endif
    // What waits behind this launch takes its turns on the schedulers, so it is let in for the last steps only. Where there
    // are few, its coming takes as long as they do.
    const int lets_next = steps > FEW ? steps - LAST : -1;
    if (lets_next < 0) let_next();
    Row row;
    int4 step = plan[0], next = plan[min(1, steps - 1)];
    int further = plan[min(AHEAD, steps - 1)].x;
    wait_before();
    ask(0, first_source, true);
#pragma unroll 1
    for (int i = 1; i < AHEAD; ++i) ask(i, plan[min(i, steps - 1)].x, i < steps);
    arrived(0, row);
    for (int i = 0; i < steps; ++i) {
        float k[EACH], q[EACH];
        widened(row.k, k);
        widened(row.q, q);
        const float v = __uint_as_float((u32)row.v << 16), kept = row.first.x, kept_k = row.first.y, beta = row.first.z;
        const float scale_k = row.first.w, kept_q = row.rest.x, both = row.rest.y;
        const int4 after = plan[min(i + 2, steps - 1)];
        const int later = plan[min(i + AHEAD + 1, steps - 1)].x;
        ask(i + AHEAD, further, i + AHEAD < steps);
        further = later;
        float seen[COLUMNS], asked[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            seen[c] = __fmul_rn(now[0][c], k[0]);
            asked[c] = __fmul_rn(now[0][c], q[0]);
        }
#pragma unroll
        for (int j = 1; j < EACH; ++j)
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                seen[c] = __fmaf_rn(now[j][c], k[j], seen[c]);
                asked[c] = __fmaf_rn(now[j][c], q[j], asked[c]);
            }
#pragma unroll
        for (int j = 0; j < EACH; ++j)
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) now[j][c] = __fmul_rn(now[j][c], kept);
        gather(seen, asked, within);
        const float change = __fmul_rn(beta, __fmaf_rn(-kept_k, seen[0], v));
        const float scaled = __fmul_rn(scale_k, change);
        float more[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) more[c] = __shfl_sync(~0u, scaled, thread - within + c * MEMBERS);
        arrived(i + 1, row);
        const float result = __fmaf_rn(both, change, __fmul_rn(kept_q, asked[0]));
        put(to + (u32)max(step.y, 0) * (HEADS * VALUES), result, tells && step.y >= 0);
#pragma unroll
        for (int j = 0; j < EACH; ++j)
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) now[j][c] = __fmaf_rn(k[j], more[c], now[j][c]);
        const bool is_flagged = (step.z & (COMMIT | SAVE)) | (next.z & (RESET | RETURN));
        if (is_flagged || i == lets_next) {
            branch();
            if (i == lets_next) let_next();
#if BULK
            if (i == steps - 1 && step.z & (COMMIT | SAVE)) {
                leave(now, own_tile, tile, is_real, step.z & COMMIT ? committed_head : 0, step.z & SAVE ? aside_head : 0);
                break;
            }
#endif
            if (step.z & COMMIT && is_real) write<down>(committed, now);
            if (step.z & SAVE && is_real) write<down>(aside, now);
            if (next.z & (RESET | RETURN) && i + 1 < steps) read<down>(now, next.z & RETURN ? aside : committed);
        }
        step = next;
        next = after;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}
