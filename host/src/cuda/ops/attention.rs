//! The launches of attention's kernels: `gpu::attention`.

use gpu::attention::{Attention, FaPrefillF16kv, Scaling, Sight};
use gpu::simt::emulator::Lane;
use gpu::simt::{Contract, Kernel};
use half::f16;

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

/// The shape of a problem of attention, and what its rows see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Query rows.
    pub tokens: usize,
    /// The position of the first of them.
    pub start: usize,
    /// Rows of keys and values.
    pub positions: usize,
    /// Query heads, a multiple of `kv_heads`: head `h` reads KV head `h / (heads / kv_heads)`.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements of a row of one head.
    pub head_size: usize,
    /// Whether a row sees only what is not after it.
    pub causal: bool,
    /// How many positions up to its own a row sees at most; 0: all.
    pub window: usize,
    /// What a product of a query and a key is multiplied with, above 0.
    pub scale: f32,
    /// The score is `softcap · tanh(score / softcap)`; 0: it is not capped.
    pub softcap: f32,
}

impl AttentionShape {
    /// A prompt of so many tokens after `start` positions that are in the cache already: causal, no
    /// window, no cap, and `scale` is 1 / √`head_size`.
    #[must_use]
    pub fn prompt(tokens: usize, start: usize, [heads, kv_heads, head_size]: [usize; 3]) -> Self {
        Self {
            tokens,
            start,
            positions: start.saturating_add(tokens),
            heads,
            kv_heads,
            head_size,
            causal: true,
            window: 0,
            scale: 1.0 / (head_size as f32).sqrt(),
            softcap: 0.0,
        }
    }
}

/// A prefill kernel: arguments that are an [`Attention`] problem, and one head size.
pub trait Prefill: Contract + for<'a> Kernel<Lane<'a>> + sealed::Sealed {
    /// Elements of a row of one head.
    const HEAD_SIZE: u32;

    /// The kernel of a problem.
    fn of(problem: Attention) -> Self;
}

mod sealed {
    /// Only kernels whose contract [`prefill`](super::prefill) checks are launched by it.
    pub trait Sealed {}
}

impl<const HEAD_SIZE: u32, const TILE_Q: u32, const TILE_KV: u32, const STAGES: u32, const STAGING_WARPS: u32>
    sealed::Sealed for FaPrefillF16kv<HEAD_SIZE, TILE_Q, TILE_KV, STAGES, STAGING_WARPS>
{
}

impl<const HEAD_SIZE: u32, const TILE_Q: u32, const TILE_KV: u32, const STAGES: u32, const STAGING_WARPS: u32>
    Prefill for FaPrefillF16kv<HEAD_SIZE, TILE_Q, TILE_KV, STAGES, STAGING_WARPS>
{
    const HEAD_SIZE: u32 = HEAD_SIZE;

    fn of(problem: Attention) -> Self {
        Self(problem)
    }
}

/// Head sizes that [`attention`] has a kernel for.
pub const PREFILL_HEAD_SIZES: [usize; 5] = [64, 80, 96, 128, 256];

/// Attention of a prompt, with the kernel for its head size: `out` is `tokens × heads × head size`,
/// as `query`; `keys` and `values` are `positions × KV heads × head size`.
///
/// # Errors
/// [`Error::Contract`] for a head size without a kernel, and as [`prefill`].
pub fn attention(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    query: View<'_, f16>,
    [keys, values]: [View<'_, f16>; 2],
    shape: &AttentionShape,
) -> Result<(), Error> {
    let cache = [keys, values];
    match shape.head_size {
        64 => prefill::<FaPrefillF16kv<64>>(queue, out, query, cache, shape),
        80 => prefill::<FaPrefillF16kv<80>>(queue, out, query, cache, shape),
        96 => prefill::<FaPrefillF16kv<96>>(queue, out, query, cache, shape),
        128 => prefill::<FaPrefillF16kv<128>>(queue, out, query, cache, shape),
        256 => prefill::<FaPrefillF16kv<256>>(queue, out, query, cache, shape),
        other => Err(Error::Contract {
            kernel: FaPrefillF16kv::<128>::NAME,
            what: format!("the head size is {other}, there are kernels for {PREFILL_HEAD_SIZES:?}"),
        }),
    }
}

/// Attention of a prompt with one kernel; see [`attention`] for the layouts.
///
/// # Errors
/// [`Error::Contract`] unless
/// - the lengths are those of the shape, each below 2^32 elements, the inputs aligned to 16 bytes
///   and `out` to 32,
/// - the head size is the kernel's, `kv_heads` divides `heads`, and both are at least 1,
/// - `start + tokens`, `positions` and `window` are below 2^31, and there are at most 65,535 tiles of
///   rows,
/// - `scale` is finite and above 0, `softcap` finite and not below;
///
/// [`Error::SharedMemory`] if a block needs more than there is; those of a launch.
pub fn prefill<K: Prefill>(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    query: View<'_, f16>,
    cache: [View<'_, f16>; 2],
    shape: &AttentionShape,
) -> Result<(), Error> {
    let arguments = checked::<K>(queue, &out, query, cache, shape)?;
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    unsafe { queue.launch(arguments) }
}

/// The kernel's arguments, if they keep its contract.
fn checked<K: Prefill>(
    queue: &impl Queue,
    out: &ViewMut<'_, f32>,
    query: View<'_, f16>,
    [keys, values]: [View<'_, f16>; 2],
    shape: &AttentionShape,
) -> Result<K, Error> {
    let check = Check::<K>::new(queue);
    let &AttentionShape { causal, scale, softcap, .. } = shape;
    const MOST: u32 = i32::MAX.cast_unsigned();
    check.that(shape.head_size == K::HEAD_SIZE as usize, || {
        format!("the head size is {}, the kernel's is {}", shape.head_size, K::HEAD_SIZE)
    })?;
    let heads = check.count(shape.heads, "heads", MOST)?;
    let kv_heads = check.count(shape.kv_heads, "KV heads", MOST)?;
    check.that(heads >= 1 && kv_heads >= 1 && heads.is_multiple_of(kv_heads), || {
        format!("{heads} heads are no multiple of {kv_heads} KV heads")
    })?;
    let tokens = check.count(shape.tokens, "tokens", MOST)?;
    let start = check.count(shape.start, "the start", MOST - tokens)?;
    let positions = check.count(shape.positions, "positions", MOST)?;
    let window = check.count(shape.window, "the window", MOST)?;
    check.that(scale.is_finite() && scale > 0.0, || format!("the scale is {scale}, not above 0"))?;
    check.that(softcap.is_finite() && softcap >= 0.0, || format!("the softcap is {softcap}, below 0"))?;
    let scaling = Scaling::new(scale, softcap);
    let in_range =
        scaling.log2.is_finite() && scaling.cap.is_finite() && (scaling.cap != 0.0 || softcap == 0.0);
    check.that(in_range, || {
        format!("the scale {scale} with the softcap {softcap} is out of an f32's range")
    })?;
    let elements = |rows: u32, heads: u32, name: &str| {
        let elements = u128::from(rows) * u128::from(heads) * u128::from(K::HEAD_SIZE);
        let count = u32::try_from(elements).map(u64::from);
        count.map_err(|_| Error::Contract {
            kernel: K::NAME,
            what: format!("{name} of {rows} × {heads} × {} elements, the most are 2^32 - 1", K::HEAD_SIZE),
        })
    };
    let rows = elements(tokens, heads, "query")?;
    let cached = elements(positions, kv_heads, "keys")?;
    check.view(out, "out", rows, 32)?;
    check.view(&query, "query", rows, 16)?;
    check.view(&keys, "keys", cached, 16)?;
    check.view(&values, "values", cached, 16)?;
    let kernel = K::of(Attention {
        out: out.start(),
        query: query.start(),
        keys: keys.start(),
        values: values.start(),
        tokens,
        start,
        positions,
        kv_heads,
        group: heads / kv_heads,
        sight: Sight::new(causal, window),
        scaling,
    });
    let tiles = kernel.launch().grid.y;
    check
        .that(tiles <= 65_535, || format!("{tokens} tokens are {tiles} tiles of rows, the most are 65535"))?;
    Ok(kernel)
}
