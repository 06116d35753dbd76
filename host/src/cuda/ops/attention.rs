//! The launches of attention's kernels: `gpu::attention`.

use std::sync::LazyLock;

use gpu::attention::{
    Attention, AttnNaive, FaPrefillF16kv, FaPrefillF16kvShared, FaPrefillF16kvWgmma, Scaling, Sight,
};
use gpu::simt::emulator::Lane;
use gpu::simt::{Contract, Kernel};
use half::f16;

use super::Check;
use crate::cuda::fallback::warn_once;
use crate::cuda::{Error, Queue, View, ViewMut, WGMMA};

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

/// A prefill kernel: arguments that are an [`Attention`] problem, and a head size.
pub trait Prefill: Contract + for<'a> Kernel<Lane<'a>> + sealed::Sealed {
    /// Elements of a row of one head, if the kernel is made for one size.
    const HEAD_SIZE: Option<u32>;

    /// The kernel of a problem with this head size, which is [`HEAD_SIZE`](Self::HEAD_SIZE) if there is
    /// one, on a device with so many multiprocessors.
    fn of(problem: Attention, head_size: u32, multiprocessors: u32) -> Self;
}

mod sealed {
    /// Only kernels whose contract [`prefill`](super::prefill) checks are launched by it.
    pub trait Sealed {}
}

macro_rules! prefill_kernel {
    ($Kernel:ident<$($parameter:ident: $type:ty),*>, |$problem:ident, $multiprocessors:pat_param| $made:expr) => {
        impl<$(const $parameter: $type),*> sealed::Sealed for $Kernel<$($parameter),*> {}

        impl<$(const $parameter: $type),*> Prefill for $Kernel<$($parameter),*> {
            const HEAD_SIZE: Option<u32> = Some(HEAD_SIZE);

            fn of($problem: Attention, _: u32, $multiprocessors: u32) -> Self {
                $made
            }
        }
    };
}

prefill_kernel!(
    FaPrefillF16kv<HEAD_SIZE: u32, TILE_Q: u32, TILE_KV: u32, STAGES: u32, STAGING_WARPS: u32>,
    |problem, _| Self(problem)
);
prefill_kernel!(
    FaPrefillF16kvShared<HEAD_SIZE: u32, TILE_KV: u32, PADDING: u32>,
    |problem, _| Self(problem)
);
prefill_kernel!(
    FaPrefillF16kvWgmma<HEAD_SIZE: u32, TILE_KV: u32, OUT: usize, SCORES: usize>,
    |problem, blocks| Self { problem, blocks }
);

impl sealed::Sealed for AttnNaive {}

impl Prefill for AttnNaive {
    const HEAD_SIZE: Option<u32> = None;

    fn of(problem: Attention, head_size: u32, _: u32) -> Self {
        Self { problem, head_size }
    }
}

/// Head sizes that [`attention`] has a fast kernel for.
pub const PREFILL_HEAD_SIZES: [usize; 5] = [64, 80, 96, 128, 256];

macro_rules! wgmma_kernels {
    ($($size:literal: $kernel:ty,)*) => {
        /// Head sizes that [`prefill_wgmma`] has a kernel for.
        pub const WGMMA_HEAD_SIZES: &[usize] = &[$($size),*];

        /// The name of [`prefill_wgmma`]'s kernel for a head size.
        #[must_use]
        pub fn wgmma_kernel(head_size: usize) -> Option<&'static str> {
            match head_size {
                $($size => Some(<$kernel as Contract>::NAME),)*
                _ => None,
            }
        }

        /// Attention of a prompt by `wgmma`, on GPUs of compute capability 9.0; see [`attention`] for the
        /// layouts.
        ///
        /// # Errors
        /// As [`prefill`]; [`Error::Contract`] for a head size that is not among [`WGMMA_HEAD_SIZES`].
        pub fn prefill_wgmma(
            queue: &impl Queue,
            out: ViewMut<'_, f32>,
            query: View<'_, f16>,
            cache: [View<'_, f16>; 2],
            shape: &AttentionShape,
        ) -> Result<(), Error> {
            match shape.head_size {
                $($size => prefill::<$kernel>(queue, out, query, cache, shape),)*
                other => Err(Error::Contract {
                    kernel: "fa_prefill_f16kv_wgmma",
                    what: format!("the head size is {other}, there are kernels for {WGMMA_HEAD_SIZES:?}"),
                }),
            }
        }
    };
}

wgmma_kernels! {
    64: FaPrefillF16kvWgmma<64, 128, 32, 64>,
    96: FaPrefillF16kvWgmma<96, 128, 48, 64>,
    128: FaPrefillF16kvWgmma<128, 128, 64, 64>,
    256: FaPrefillF16kvWgmma<256, 64, 128, 32>,
}

/// Whether a queue of this compute capability has attention done by [`prefill_wgmma`]. However many rows there
/// are: a row's bits must not depend on how its prompt was cut.
fn has_wgmma(compute_capability: Option<u32>, head_size: usize) -> bool {
    compute_capability == Some(WGMMA) && WGMMA_HEAD_SIZES.contains(&head_size)
}

/// Unless `LANEMAP_CUDA_WGMMA_ATTENTION` is 0.
static WGMMA_WANTED: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("LANEMAP_CUDA_WGMMA_ATTENTION").is_none_or(|value| value != "0"));

/// Attention of a prompt, with the kernel for its head size: `out` is `tokens × heads × head size`,
/// as `query`; keys and values, together `cache`, are `positions × KV heads × head size`.
///
/// On GPUs of compute capability 9.0 it is [`prefill_wgmma`] for the head sizes that it has, unless
/// `LANEMAP_CUDA_WGMMA_ATTENTION` is 0.
///
/// Where a block cannot have enough shared memory for it, which on devices of today is at head size
/// 256 on sm_75, blocks of half as many rows run, with the same bits; for other head sizes
/// `fa_prefill_f16kv_shared`. Should that be too much as well, `attn_naive` does, as it does for all
/// head sizes but [`PREFILL_HEAD_SIZES`]. A warning says so, once.
///
/// # Errors
/// As [`prefill`].
pub fn attention(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    query: View<'_, f16>,
    cache: [View<'_, f16>; 2],
    shape: &AttentionShape,
) -> Result<(), Error> {
    if has_wgmma(queue.compute_capability(), shape.head_size) && *WGMMA_WANTED {
        return prefill_wgmma(queue, out, query, cache, shape);
    }
    match shape.head_size {
        64 => fastest::<FaPrefillF16kv<64>, FaPrefillF16kvShared<64>>(queue, out, query, cache, shape),
        80 => fastest::<FaPrefillF16kv<80>, FaPrefillF16kvShared<80>>(queue, out, query, cache, shape),
        96 => fastest::<FaPrefillF16kv<96>, FaPrefillF16kvShared<96>>(queue, out, query, cache, shape),
        128 => fastest::<FaPrefillF16kv<128>, FaPrefillF16kvShared<128>>(queue, out, query, cache, shape),
        256 => fastest::<FaPrefillF16kv<256>, FaPrefillF16kv<256, 32, 32>>(queue, out, query, cache, shape),
        other => {
            let why = format!("head size {other}: there are kernels for {PREFILL_HEAD_SIZES:?}");
            warn_once(&why, AttnNaive::NAME);
            prefill::<AttnNaive>(queue, out, query, cache, shape)
        }
    }
}

/// The first of `P`, `F` and `attn_naive` that a block has enough shared memory for.
fn fastest<P: Prefill, F: Prefill>(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    query: View<'_, f16>,
    cache: [View<'_, f16>; 2],
    shape: &AttentionShape,
) -> Result<(), Error> {
    let preferred = checked::<P>(queue, &out, query, cache, shape)?;
    let fallback = checked::<F>(queue, &out, query, cache, shape)?;
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    match unsafe { queue.launch_or(preferred, fallback) } {
        Err(error @ Error::SharedMemory { .. }) => {
            warn_once(&error.to_string(), AttnNaive::NAME);
            prefill::<AttnNaive>(queue, out, query, cache, shape)
        }
        result => result,
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
    let head_size = check.count(shape.head_size, "the head size", MOST)?;
    check.that(head_size >= 1 && K::HEAD_SIZE.is_none_or(|size| size == head_size), || {
        let size = K::HEAD_SIZE.map_or_else(|| "1 or more".to_owned(), |size| size.to_string());
        format!("the head size is {head_size}, the kernel's is {size}")
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
        let elements = u128::from(rows) * u128::from(heads) * u128::from(head_size);
        let count = u32::try_from(elements).map(u64::from);
        count.map_err(|_| Error::Contract {
            kernel: K::NAME,
            what: format!("{name} of {rows} × {heads} × {head_size} elements, the most are 2^32 - 1"),
        })
    };
    let rows = elements(tokens, heads, "query")?;
    let cached = elements(positions, kv_heads, "keys")?;
    check.view(out, "out", rows, 32)?;
    check.view(&query, "query", rows, 16)?;
    check.view(&keys, "keys", cached, 16)?;
    check.view(&values, "values", cached, 16)?;
    let problem = Attention {
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
    };
    let multiprocessors = queue.multiprocessors();
    check.that(multiprocessors > 0, || "the device has 0 multiprocessors, it takes at least 1".to_owned())?;
    let kernel = K::of(problem, head_size, multiprocessors);
    let grid = kernel.launch().grid;
    check.that(grid.y <= 65_535, || {
        format!("{tokens} tokens of {heads} heads are {} by {} blocks, the most are 65535", grid.x, grid.y)
    })?;
    Ok(kernel)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use crate::cuda::{Around, Emulated};
    use crate::experiment::{PARITY, Problem};

    /// An emulator that says it is some GPU, whose blocks may have less shared memory, and that knows what ran.
    struct Small {
        emulated: Emulated,
        compute_capability: Option<u32>,
        most: u32,
        ran: std::cell::RefCell<Vec<&'static str>>,
    }

    impl Around for Small {
        type Inner = Emulated;

        fn inner(&self) -> &Emulated {
            &self.emulated
        }

        fn compute_capability_around(&self) -> Option<u32> {
            self.compute_capability
        }

        unsafe fn launch_around<K>(&self, kernel: K) -> Result<(), Error>
        where
            K: for<'a> Kernel<Lane<'a>>,
        {
            let (needed, limit) = (kernel.launch().shared_bytes.into(), self.most.into());
            if needed > limit {
                let device = "a small device".to_owned();
                return Err(Error::SharedMemory { kernel: K::NAME, device, needed, limit });
            }
            self.ran.borrow_mut().push(K::NAME);
            // SAFETY: the caller's.
            unsafe { self.emulated.launch(kernel) }
        }
    }

    #[track_caller]
    fn ran(head_size: usize, most: u32) -> &'static str {
        ran_on(None, head_size, most)
    }

    #[track_caller]
    fn ran_on(compute_capability: Option<u32>, head_size: usize, most: u32) -> &'static str {
        let queue = Small { emulated: Emulated::new(), compute_capability, most, ran: Vec::new().into() };
        let problem = Problem::random(AttentionShape::prompt(3, 4, [2, 1, head_size]), 1);
        let query = queue.input("query", &problem.query).unwrap();
        let keys = queue.input("keys", &problem.keys).unwrap();
        let values = queue.input("values", &problem.values).unwrap();
        let mut out = queue.output("out", query.len()).unwrap();
        let cache = [keys.view(), values.view()];
        attention(&queue, out.view_mut(), query.view(), cache, &problem.shape).unwrap();
        let expected = (0..3).flat_map(|token| problem.reference(token));
        for (found, expected) in out.read().unwrap().into_iter().zip(expected) {
            assert!((f64::from(found) - expected).abs() <= PARITY, "{found}, expected {expected}");
        }
        let ran = queue.ran.into_inner();
        assert_eq!(ran.len(), 1, "{ran:?}");
        ran[0]
    }

    #[test]
    fn the_kernel_is_that_of_the_head_size() {
        let names = PREFILL_HEAD_SIZES.map(|head_size| ran(head_size, u32::MAX));
        let expected = [
            "fa_prefill_f16kv_hd64",
            "fa_prefill_f16kv_hd80",
            "fa_prefill_f16kv_hd96",
            "fa_prefill_f16kv",
            "fa_prefill_f16kv_hd256",
        ];
        assert_eq!(names, expected);
        assert_eq!(ran(32, u32::MAX), "attn_naive");
        assert_eq!(ran(7, u32::MAX), "attn_naive");
    }

    #[test]
    fn wgmma_is_for_the_gpus_that_have_it_and_for_its_head_sizes() {
        assert!([64, 96, 128, 256].into_iter().all(|head_size| has_wgmma(Some(90), head_size)));
        assert!(!has_wgmma(Some(90), 80) && !has_wgmma(Some(100), 128) && !has_wgmma(None, 128));
        assert_eq!(wgmma_kernel(96), Some("fa_prefill_f16kv_wgmma_hd96"));
    }

    #[test]
    fn attention_is_by_wgmma_on_the_gpus_that_have_it() {
        assert!(*WGMMA_WANTED, "this test is of what happens unless LANEMAP_CUDA_WGMMA_ATTENTION is 0");
        assert_eq!(ran_on(Some(90), 128, u32::MAX), "fa_prefill_f16kv_wgmma");
        assert_eq!(ran_on(Some(90), 64, u32::MAX), "fa_prefill_f16kv_wgmma_hd64");
        assert_eq!(ran_on(Some(90), 80, u32::MAX), "fa_prefill_f16kv_hd80");
        assert_eq!(ran_on(Some(80), 128, u32::MAX), "fa_prefill_f16kv");
        assert_eq!(ran_on(Some(100), 128, u32::MAX), "fa_prefill_f16kv");
    }

    #[test]
    fn without_enough_shared_memory_a_simpler_kernel_runs() {
        assert_eq!(ran(128, 34_816), "fa_prefill_f16kv");
        assert_eq!(ran(128, 34_815), "attn_naive", "the structure before takes more");
        assert_eq!(ran(256, 64 << 10), "fa_prefill_f16kv_hd256_tq32");
        assert_eq!(ran(256, 48 << 10), "attn_naive");
    }
}
