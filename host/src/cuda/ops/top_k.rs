//! The launches of `gpu::sampling::TopK`.

use gpu::sampling::TopK;

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

/// The first round, and every further one.
type First = TopK<true>;
type Further = TopK<false>;

/// Keys of a row that each round but the last leaves, beginning with `vocabulary` logits.
fn rounds(vocabulary: u32, k: u32) -> impl Iterator<Item = u32> {
    let next = move |&count: &u32| {
        let parts = First::parts(count);
        (parts > 1).then(|| parts * k)
    };
    std::iter::successors(next(&vocabulary), next)
}

/// Elements of the workspace of [`top_k`] for `rows` rows of `vocabulary` logits, where `k` is one that it
/// takes.
#[must_use]
pub fn top_k_workspace(rows: usize, vocabulary: usize, k: usize) -> usize {
    let vocabulary = u32::try_from(vocabulary).unwrap_or(0).min(i32::MAX.unsigned_abs());
    let k = k.min(First::MOST as usize) as u32;
    rows.saturating_mul(rounds(vocabulary, k).map(|keys| keys as usize).sum())
}

/// The `k` largest logits of each row of `logits`, `rows × vocabulary`, largest first: tokens and values,
/// `rows × k` each. Of equal logits the lower token is first; NaN comes after every number. Values are `cap
/// · tanh(logit / cap)` where there is a `softcap`.
///
/// # Errors
/// [`Error::Contract`] unless outputs and `logits` have the elements of the shape, `k` is at most 128 and at
/// most the vocabulary, which is below 2^31, `workspace` has the elements of [`top_k_workspace`], and there
/// are at most 65,535 rows; those of a launch.
pub fn top_k(
    queue: &impl Queue,
    (tokens, values): (ViewMut<'_, u32>, ViewMut<'_, f32>),
    logits: View<'_, f32>,
    workspace: ViewMut<'_, u64>,
    softcap: Option<f32>,
    [rows, vocabulary, k]: [usize; 3],
) -> Result<(), Error> {
    let check = Check::<First>::new(queue);
    let rows = check.count(rows, "rows", 65_535)?;
    let vocabulary = check.count(vocabulary, "the vocabulary", i32::MAX.unsigned_abs())?;
    let k = check.count(k, "k", First::MOST.min(vocabulary))?;
    check.view(&tokens, "tokens", u64::from(rows) * u64::from(k), 4)?;
    check.view(&values, "values", u64::from(rows) * u64::from(k), 4)?;
    check.view(&logits, "logits", u64::from(rows) * u64::from(vocabulary), 4)?;
    let needed: u64 = rounds(vocabulary, k).map(|keys| u64::from(keys) * u64::from(rows)).sum();
    check.view(&workspace, "the workspace", needed, 8)?;
    if k == 0 {
        return Ok(());
    }
    let (tokens, values) = (tokens.start(), values.start());
    let softcap = softcap.unwrap_or(0.0);
    let mut keys = workspace.start();
    let input = logits.start().cast();
    // SAFETY: lengths, alignment and limits were just checked; outputs are borrowed alone; each round
    // reads what the one before has written, and writes behind it.
    unsafe {
        queue.launch(First { keys, tokens, values, input, rows, count: vocabulary, k, softcap })?;
        for count in rounds(vocabulary, k) {
            let input = keys.cast();
            keys = keys.at(u64::from(count) * u64::from(rows));
            queue.launch(Further { keys, tokens, values, input, rows, count, k, softcap })?;
        }
    }
    Ok(())
}
