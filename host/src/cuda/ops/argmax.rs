//! The launches of `gpu::sampling::ArgmaxParts` and `gpu::sampling::Argmax`.

use gpu::attention::KvPlace;
use gpu::sampling::{Argmax, ArgmaxParts};
use gpu::simt::Global;

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

/// Elements of the workspace of [`argmax`] for `rows` rows of `vocabulary` logits.
#[must_use]
pub fn argmax_workspace(rows: usize, vocabulary: usize) -> usize {
    let vocabulary = u32::try_from(vocabulary).unwrap_or(u32::MAX);
    rows.saturating_mul(ArgmaxParts::parts(vocabulary) as usize)
}

/// The token of the largest logit of each row of `logits`, `rows × vocabulary`, of equal ones the lowest;
/// [`NO_TOKEN`](gpu::sampling::NO_TOKEN) where a logit is NaN or +∞. Where there are `places`, each row's position becomes one more.
///
/// # Errors
/// [`Error::Contract`] unless `tokens`, and `places`, have `rows` elements, `logits` has those of the shape,
/// of which the vocabulary is above 0 and below 2^31, `workspace` has those of [`argmax_workspace`], and there are
/// at most 65,535 rows; those of a launch.
pub fn argmax(
    queue: &impl Queue,
    tokens: ViewMut<'_, u32>,
    logits: View<'_, f32>,
    workspace: ViewMut<'_, u64>,
    places: Option<ViewMut<'_, KvPlace>>,
    [rows, vocabulary]: [usize; 2],
) -> Result<(), Error> {
    let check = Check::<Argmax>::new(queue);
    let rows = check.count(rows, "rows", 65_535)?;
    let vocabulary = check.count(vocabulary, "the vocabulary", i32::MAX.unsigned_abs())?;
    check.that(vocabulary > 0, || "the vocabulary is empty".to_owned())?;
    let parts = ArgmaxParts::parts(vocabulary);
    check.view(&tokens, "tokens", rows.into(), 4)?;
    check.view(&logits, "logits", u64::from(rows) * u64::from(vocabulary), 4)?;
    check.view(&workspace, "the workspace", u64::from(rows) * u64::from(parts), 8)?;
    if let Some(places) = &places {
        check.view(places, "places", rows.into(), 8)?;
    }
    let places = places.map_or(Global::from_address(0), |places| places.start());
    let (best, logits, tokens) = (workspace.start(), logits.start(), tokens.start());
    // SAFETY: lengths, alignment and limits were just checked; outputs are borrowed alone; the second
    // kernel reads what the first has written.
    unsafe {
        queue.launch(ArgmaxParts { parts: best, logits, rows, vocabulary })?;
        queue.launch(Argmax { tokens, best, places, rows, parts })
    }
}
