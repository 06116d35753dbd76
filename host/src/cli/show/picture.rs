//! What is drawn, whichever way: the maps, the headings, the words.

use gpu::fragment::{Fragment, wmma};

/// One map, or several of equal shape and lanes beside each other.
pub(super) struct Picture {
    pub(super) title: String,
    pub(super) panels: Vec<Panel>,
    /// The lane to mark.
    pub(super) marked: Option<u32>,
    /// Paragraphs below the drawing.
    pub(super) notes: Vec<String>,
}

/// One map.
pub(super) struct Panel {
    pub(super) caption: String,
    pub(super) fragment: &'static Fragment,
}

impl Picture {
    /// One fragment.
    pub(super) fn of(fragment: &'static Fragment, marked: Option<u32>) -> Self {
        let Fragment { name, axes: (row, column), .. } = fragment;
        let mut notes = vec![format!(
            "{name}: {tile} elements ({row}, {column}) over {lanes} lanes; a lane holds {share}. {registers}.",
            tile = tile(fragment),
            lanes = fragment.lanes,
            share = share(fragment),
            registers = registers(fragment),
        )];
        if fragment.copies > 1 {
            let (n, end) = (fragment.elements, fragment.elements * fragment.copies);
            notes.push(format!(
                "x[{n}..{end}] is a second copy of x[0..{n}], which the hardware does not read."
            ));
        }
        notes.push(format!("Source: {}.", fragment.source));
        Self {
            title: format!("{}: {}", fragment.instruction, fragment.operand),
            panels: vec![Panel { caption: String::new(), fragment }],
            marked,
            notes,
        }
    }

    /// The accumulator and the A operand that it is.
    pub(super) fn identity(marked: Option<u32>) -> Self {
        let (accumulator, a) = (&wmma::ACCUMULATOR, &wmma::A_ROW);
        let mut picture = Self {
            title: "The identity: an accumulator is, lane for lane and index for index, an A operand".into(),
            panels: vec![
                Panel { caption: "accumulator, f32: S = Q·Kᵀ comes out".into(), fragment: accumulator },
                Panel { caption: "matrix_a row_major, f16: P goes into P·V".into(), fragment: a },
            ],
            marked,
            notes: Vec::new(),
        };
        let all = accumulator.rows * accumulator.columns;
        let shared = (0..all).filter(|n| picture.shared(n / accumulator.columns, n % accumulator.columns));
        picture.notes = vec![
            format!(
                "{} of {all} elements of wmma m16n16k16 are in the same lane at the same x[i] in both \
                 fragments, as marked.",
                shared.count()
            ),
            "For softmax: S leaves the tensor cores in the accumulator, and P = softmax(S) enters them \
             again as A. A lane turns each of its x[i] into exp2(x[i] − max), rounds it to f16, and holds \
             its A operand: no shared memory, no barrier, no shuffle. A row lies in the four lanes of a \
             group, so its maximum and its sum take two shuffles, of distance 1 and 2."
                .into(),
        ];
        picture
    }

    /// Lanes of the maps.
    pub(super) fn lanes(&self) -> u32 {
        self.panels.iter().map(|panel| panel.fragment.lanes).min().unwrap_or(0)
    }

    /// Whether all panels, of which there are several, have the element in the same lane at the
    /// same index.
    pub(super) fn shared(&self, row: u32, column: u32) -> bool {
        let mut holders = self.panels.iter().map(|panel| panel.fragment.holder(row, column));
        let first = holders.next();
        self.panels.len() > 1 && holders.all(|holder| Some(holder) == first)
    }
}

/// `16 × 8`, rows first.
pub(super) fn tile(fragment: &Fragment) -> String {
    format!("{} × {}", fragment.rows, fragment.columns)
}

/// `8 elements in 4 registers`.
pub(super) fn share(fragment: &Fragment) -> String {
    let registers = fragment.registers();
    let plural = if registers == 1 { "" } else { "s" };
    format!("{} elements in {registers} register{plural}", fragment.elements * fragment.copies)
}

/// How elements lie in registers.
fn registers(fragment: &Fragment) -> &'static str {
    match fragment.per_register() {
        1 => "x[i] is 32-bit register i",
        2 => "x[2r] and x[2r + 1] are the low and the high half of 32-bit register r",
        _ => "x[4r] to x[4r + 3] are the bytes of 32-bit register r, the lowest first",
    }
}

/// Where `x[i]` of a lane lies in its registers: `r2`, `r2 low`, `r2 byte 3`.
pub(super) fn register(fragment: &Fragment, i: u32) -> String {
    let (register, part) = (i / fragment.per_register(), i % fragment.per_register());
    match fragment.per_register() {
        1 => format!("r{register}"),
        2 => format!("r{register} {}", if part == 0 { "low" } else { "high" }),
        _ => format!("r{register} byte {part}"),
    }
}

/// The text in lines of at most `width` characters, unless a word is longer.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap() {
        assert_eq!(wrap("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrap("× × ×", 3), ["× ×", "×"]);
        assert_eq!(wrap("much too long", 2), ["much", "too", "long"]);
    }

    #[test]
    fn only_equal_holders_are_shared() {
        let picture = Picture::identity(None);
        assert!(picture.notes[0].starts_with("256 of 256 "), "{}", picture.notes[0]);
        let panel = |fragment| Panel { caption: String::new(), fragment };
        let unlike = Picture { panels: vec![panel(&wmma::ACCUMULATOR), panel(&wmma::B_ROW)], ..picture };
        assert!(unlike.shared(0, 0) && unlike.shared(9, 9) && !unlike.shared(0, 1) && !unlike.shared(1, 0));
        assert!(!Picture::of(&wmma::ACCUMULATOR, None).shared(0, 0), "one map shares with none");
    }

    #[test]
    fn registers_are_named() {
        assert_eq!(register(&wmma::ACCUMULATOR, 5), "r5");
        assert_eq!(register(&wmma::A_ROW, 5), "r2 high");
        assert_eq!(register(&gpu::fragment::mma::A_S8, 14), "r3 byte 2");
    }
}
