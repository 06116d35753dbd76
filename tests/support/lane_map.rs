//! Lane maps read off what the probes answer, and held against `gpu::fragment`.
//!
//! Nothing here calls a map to read an answer: a dump says where the machine has an element, and only
//! then is the constant function asked.

use std::fmt::{self, Write as _};

use gpu::fragment::Fragment;
use gpu::probe::{ProbeLoads, ProbeMapWgmma, Questions};

/// (row, column) or (row, k) or (k, column) of an element.
pub(crate) type Element = (u32, u32);

/// A lane map as a machine has it.
pub(crate) struct Dump {
    pub(crate) fragment: Fragment,
    /// The kernel that asked, and what for if it asks for several.
    pub(crate) by: String,
    /// Elements of a lane: of an operand that has two copies, both.
    elements: u32,
    /// Element `i` of lane `l` is at `l * elements + i`.
    pub(crate) table: Vec<Element>,
}

impl Dump {
    fn new(
        fragment: Fragment,
        by: impl Into<String>,
        elements: u32,
        element: impl Fn(u32, u32) -> Element,
    ) -> Self {
        let places = (0..fragment.lanes).flat_map(|lane| (0..elements).map(move |i| (lane, i)));
        let table = places.map(|(lane, i)| element(lane, i)).collect();
        Self { fragment, by: by.into(), elements, table }
    }

    fn at(&self, lane: u32, i: u32) -> Element {
        self.table[(lane * self.elements + i) as usize]
    }

    /// What is elsewhere than the map says, in words; nothing if they are equal.
    pub(crate) fn differences(&self) -> String {
        let mut text = String::new();
        for lane in 0..self.fragment.lanes {
            for i in 0..self.elements {
                let (found, expected) = (self.at(lane, i), self.fragment.element(lane, i));
                if found != expected {
                    let name = self.fragment.name;
                    let _ = writeln!(
                        text,
                        "{name}, {}: x[{i}] of lane {lane} is {found:?}, the map says {expected:?}",
                        self.by
                    );
                }
            }
        }
        text
    }

    /// The whole of it, a line a lane.
    pub(crate) fn table(&self) -> String {
        let Fragment { name, axes, rows, columns, lanes, .. } = self.fragment;
        let mut text = format!("{name}, {rows} × {columns} ({}, {}), {}\n", axes.0, axes.1, self.by);
        for lane in 0..lanes {
            let _ = write!(text, "{lane:4}:");
            for i in 0..self.elements {
                let (row, column) = self.at(lane, i);
                let _ = write!(text, " {row},{column}");
            }
            text.push('\n');
        }
        text
    }

    /// One line: what was dumped.
    pub(crate) fn summary(&self) -> String {
        let Fragment { name, lanes, .. } = self.fragment;
        format!("{name}, x[0..{}] of {lanes} lanes, {}", self.elements, self.by)
    }
}

/// What [`ProbeLoads`] dumps: the registers of each load, and what two stores wrote.
pub(crate) fn of_loads(registers: &[u32], stored: &[f32]) -> Vec<Dump> {
    let loads = ProbeLoads::DUMPS.map(|dump| {
        let Fragment { rows, columns, elements, copies, bits, .. } = dump.fragment;
        let layout = if dump.row_major { "by rows" } else { "by columns" };
        Dump::new(dump.fragment, format!("probe_loads, {layout}"), elements * copies, |lane, i| {
            let per_register = 32 / bits;
            let register = registers[((dump.first + i / per_register) * 32 + lane) as usize];
            let at = register >> (bits * (i % per_register)) & (u32::MAX >> (32 - bits));
            if dump.row_major { (at / columns, at % columns) } else { (at % rows, at / rows) }
        })
    });
    let stores = [true, false].into_iter().zip(stored.chunks(256)).map(|(row_major, stored)| {
        let layout = if row_major { "by rows" } else { "by columns" };
        let fragment = gpu::fragment::wmma::ACCUMULATOR;
        Dump::new(fragment, format!("probe_loads, stored {layout}"), fragment.elements, |lane, i| {
            let held = |&value: &f32| whole(value) == 8 * lane + i;
            let at = stored.iter().position(held).expect("stored nowhere") as u32;
            if row_major { (at / 16, at % 16) } else { (at % 16, at / 16) }
        })
    });
    loads.into_iter().chain(stores).collect()
}

/// The whole number that an answer is. An answer that was not written is NaN and none.
pub(crate) fn whole(value: f32) -> u32 {
    assert!(value >= 0.0 && value.fract() == 0.0 && value <= 16_777_216.0, "{value} is no whole number");
    value as u32
}

/// Answers to questions, each a number for every place of D.
struct Answers<'a> {
    numbers: &'a [u32],
    lanes: u32,
    /// Places of a lane.
    places: u32,
}

impl Answers<'_> {
    fn at(&self, question: u32, lane: u32, i: u32) -> u32 {
        self.numbers[((question * self.places + i) * self.lanes + lane) as usize]
    }

    /// The rows and columns of D: both questions have them, from 1, as often as the product is deep.
    fn accumulators(&self, d: Fragment, depth: u32, [rows, columns]: [u32; 2], by: &str) -> Dump {
        let name = d.name;
        let number = |question, lane, i, most| {
            let sum = self.at(question, lane, i);
            let number = sum / depth;
            assert!(
                sum.is_multiple_of(depth) && (1..=most).contains(&number),
                "{name}, {by}: place {i} of lane {lane} answers {sum}"
            );
            number - 1
        };
        Dump::new(d, format!("{by}, D"), self.places, |lane, i| {
            (number(rows, lane, i, d.rows), number(columns, lane, i, d.columns))
        })
    }

    /// Where C has the elements of D: the numbers that went in as C, where they came out.
    fn kept(&self, d: &Dump, question: u32, by: &str) -> Dump {
        let mut table = vec![None; d.table.len()];
        for lane in 0..self.lanes {
            for i in 0..self.places {
                let went_in = self.at(question, lane, i).checked_sub(1).map(|place| place as usize);
                let place = went_in.and_then(|place| table.get_mut(place));
                let place = place.unwrap_or_else(|| panic!("{}, {by}: C is not in D", d.fragment.name));
                assert!(place.replace(d.at(lane, i)).is_none(), "{}, {by}: C is twice in D", d.fragment.name);
            }
        }
        Dump {
            fragment: d.fragment,
            by: format!("{by}, C"),
            elements: self.places,
            table: table.into_iter().map(|place| place.expect("as many places as numbers")).collect(),
        }
    }

    /// (row of D, k) of an operand's one element, from a product with a matrix of k + 1: this is in
    /// all of the row and nowhere else. For a column, `line` takes it of an element of D. `what` is
    /// named if D does not look like that.
    fn found(&self, question: u32, d: &Dump, line: fn(Element) -> u32, what: fmt::Arguments<'_>) -> Element {
        let places = || (0..self.lanes).flat_map(|lane| (0..self.places).map(move |i| (lane, i)));
        let first = places().find(|&(lane, i)| self.at(question, lane, i) != 0);
        let (lane, i) = first.unwrap_or_else(|| panic!("{what}: D is zero"));
        let (number, at) = (self.at(question, lane, i), line(d.at(lane, i)));
        for (lane, i) in places() {
            let expected = if line(d.at(lane, i)) == at { number } else { 0 };
            let found = self.at(question, lane, i);
            assert_eq!(found, expected, "{what}: D's {:?}, place {i} of lane {lane}", d.at(lane, i));
        }
        (at, number - 1)
    }
}

/// What the probes of `mma` answer: D, C, A and B.
pub(crate) fn of_mma(
    [a, b, d]: [Fragment; 3],
    questions: Questions,
    numbers: &[u32],
    by: &'static str,
) -> Vec<Dump> {
    let answers = Answers { numbers, lanes: d.lanes, places: d.elements };
    let sums = answers.accumulators(d, a.columns, [Questions::ROWS, Questions::COLUMNS], by);
    let kept = answers.kept(&sums, Questions::KEPT, by);
    let a = Dump::new(a, by, a.elements, |lane, i| {
        let what = format_args!("{}, {by}: x[{i}] of lane {lane}", a.name);
        answers.found(questions.a(lane, i), &sums, |(row, _)| row, what)
    });
    let b = Dump::new(b, by, b.elements, |lane, i| {
        let what = format_args!("{}, {by}: x[{i}] of lane {lane}", b.name);
        let (column, k) = answers.found(questions.b(lane, i), &sums, |(_, column)| column, what);
        (k, column)
    });
    vec![sums, kept, a, b]
}

/// What a probe of `wgmma` answers: D, the accumulators that went in, and A.
pub(crate) fn of_wgmma<const REGISTERS: usize>(
    about_d: &[u32],
    about_a: &[u32],
    by: &'static str,
) -> Vec<Dump> {
    type Probe<const REGISTERS: usize> = ProbeMapWgmma<REGISTERS>;
    let (a, d) = (Probe::<REGISTERS>::A, Probe::<REGISTERS>::D);
    let answers = Answers { numbers: about_d, lanes: d.lanes, places: d.elements };
    let asked = [Probe::<REGISTERS>::ROWS, Probe::<REGISTERS>::COLUMNS];
    let sums = answers.accumulators(d, a.columns, asked, by);
    let kept = answers.kept(&sums, Probe::<REGISTERS>::KEPT, by);
    let answers = Answers { numbers: about_a, lanes: d.lanes, places: Probe::<REGISTERS>::STORED };
    let a = Dump::new(a, by, a.elements, |lane, i| {
        let what = format_args!("{}, {by}: x[{i}] of lane {lane}", a.name);
        answers.found(Probe::<REGISTERS>::place(lane, i), &sums, |(row, _)| row, what)
    });
    vec![sums, kept, a]
}
