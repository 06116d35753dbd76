//! Models of random weights: the sizes and formats of real ones, so that speed can be measured without a
//! download. What they say is noise; how long they take to say it does not depend on the weights.
//!
//! A [`Spec`] such as `qwen2-7b:q4_k_m` names a [`Shape`] (what the layers are) and a [`Mix`] (which tensor
//! has which format). A [`Synth`] is the file that it and a seed stand for: made in parallel, the same bytes
//! on every machine, written to a file or held in memory as an open [`Gguf`].
//!
//! Quants are random bits; a block's scale is chosen so that a matrix gives outputs about as large as its
//! inputs, norms are 1 and biases 0. So activations neither overflow nor vanish, however many layers there are.
//!
//! ```
//! use lanemap::model::Model;
//! use lanemap::synth::{Spec, Synth};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spec: Spec = "tiny:q4_k_m".parse()?;
//! let gguf = Synth::new(spec, lanemap::synth::DEFAULT_SEED).gguf(&mut |_| Ok(()))?;
//! assert_eq!(Model::load(gguf.into())?.config().layers, 2);
//! # Ok(())
//! # }
//! ```

mod blocks;
mod file;
mod mix;
mod shape;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use rayon::prelude::*;

pub use file::SynthError;
pub use mix::{MIXES, Mix};
pub use shape::{SHAPES, Shape};

use crate::gguf::{Gguf, GgufError, GgufWriter, Layout};
use blocks::Piece;
use shape::Values;

/// The seed where none is asked for.
pub const DEFAULT_SEED: u64 = 42;

/// Which model: `SHAPE:MIX`, such as `qwen2-7b:q4_k_m`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// What the layers are.
    pub shape: &'static Shape,
    /// Which tensor has which format.
    pub mix: &'static Mix,
}

/// Why a text is no [`Spec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// There is no colon.
    #[error(
        "`{0}` is not SHAPE:MIX, such as {example}; the shapes are {shapes}",
        example = Spec { shape: &SHAPES[0], mix: &MIXES[0] }, shapes = names(&SHAPES.map(|shape| shape.name))
    )]
    Form(String),
    /// No shape has this name.
    #[error("there is no shape `{0}`; the shapes are {shapes}", shapes = names(&SHAPES.map(|shape| shape.name)))]
    Shape(String),
    /// No mix has this name.
    #[error("there is no mix `{0}`; the mixes are {mixes}", mixes = names(&MIXES.map(|mix| mix.name)))]
    Mix(String),
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (shape, mix) = text.split_once(':').ok_or_else(|| SpecError::Form(text.to_owned()))?;
        let known_shape = SHAPES.iter().find(|known| known.name == shape);
        let known_mix = MIXES.iter().find(|known| known.name == mix);
        Ok(Self {
            shape: known_shape.ok_or_else(|| SpecError::Shape(shape.to_owned()))?,
            mix: known_mix.ok_or_else(|| SpecError::Mix(mix.to_owned()))?,
        })
    }
}

fn names(names: &[&str]) -> String {
    names.join(", ")
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shape.name, self.mix.name)
    }
}

/// Called with the bytes that are done; an error ends the work.
pub type Progress<'a> = dyn FnMut(u64) -> io::Result<()> + 'a;

/// A model to be made.
#[derive(Clone, Debug)]
pub struct Synth {
    spec: Spec,
    layout: Layout,
    /// What is to be made of the file, in its order, without overlap; the rest is zeros.
    pieces: Vec<Piece>,
    parameters: u64,
}

/// About as many bytes are made before they are written: enough pieces for many threads, and little enough
/// for any machine.
const SPAN_BYTES: u64 = 32 << 20;

impl Synth {
    /// Plans the model; nothing is made yet.
    ///
    /// # Panics
    /// For a shape of the caller's own whose rows are no whole blocks in the mix's formats, or whose
    /// vocabulary is not larger than 256.
    #[must_use]
    pub fn new(spec: Spec, seed: u64) -> Self {
        let tensors = spec.shape.tensors(spec.mix);
        let metadata = spec.shape.metadata(spec.mix);
        let writer =
            metadata.into_iter().fold(GgufWriter::new(), |writer, (key, value)| writer.meta(&key, value));
        let writer = tensors.iter().fold(writer, |writer, tensor| {
            writer.tensor_without_bytes(&tensor.name, &tensor.dims, tensor.format)
        });
        let layout = writer.layout().expect("rows are whole blocks");
        let mut pieces = Vec::new();
        for (number, (tensor, range)) in tensors.iter().zip(&layout.tensors).enumerate() {
            match tensor.values {
                Values::Zeros => {}
                Values::Ones => pieces.push(Piece::ones(range.clone())),
                Values::Random { deviation } => {
                    let place = (range.clone(), number as u32);
                    pieces.extend(Piece::random(tensor.format, deviation, place, seed));
                }
            }
        }
        let parameters = tensors.iter().map(|tensor| tensor.dims.iter().product::<u64>()).sum();
        Self { spec, layout, pieces, parameters }
    }

    /// What it is.
    #[must_use]
    pub fn spec(&self) -> Spec {
        self.spec
    }

    /// Weights, in elements.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// The number of tensors.
    #[must_use]
    pub fn tensors(&self) -> usize {
        self.layout.tensors.len()
    }

    /// Bytes of the file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.layout.file_bytes
    }

    /// Makes the model in memory, under the name `synth:SHAPE:MIX`.
    ///
    /// # Errors
    /// When there is not so much memory, and that of `progress`.
    pub fn gguf(&self, progress: &mut Progress<'_>) -> Result<Gguf, GgufError> {
        let name = format!("synth:{}", self.spec);
        let bytes = usize::try_from(self.file_bytes()).unwrap_or(usize::MAX);
        Gguf::in_memory(Path::new(&name), bytes, |mut out| {
            for span in self.spans() {
                let (now, later) = out.split_at_mut((span.end - span.start) as usize);
                self.make(&span, now);
                progress(span.end)?;
                out = later;
            }
            Ok(())
        })
    }

    /// Writes the file, of which no more than a span is in memory at a time.
    ///
    /// # Errors
    /// Those of `out` and of `progress`.
    pub fn write_to(&self, out: &mut impl Write, progress: &mut Progress<'_>) -> io::Result<()> {
        // Words, so that blocks are aligned in it.
        let mut buffer: Vec<u64> = Vec::new();
        for span in self.spans() {
            let bytes = (span.end - span.start) as usize;
            buffer.clear();
            buffer.resize(bytes.div_ceil(size_of::<u64>()), 0);
            let buffer = &mut bytemuck::cast_slice_mut(&mut buffer)[..bytes];
            self.make(&span, buffer);
            out.write_all(buffer)?;
            progress(span.end)?;
        }
        Ok(())
    }

    /// The file cut into spans, each of whole pieces.
    fn spans(&self) -> impl Iterator<Item = Range<u64>> {
        let mut start = 0;
        std::iter::from_fn(move || {
            if start == self.file_bytes() {
                return None;
            }
            let first = self.pieces.partition_point(|piece| piece.range.start < start);
            let next =
                self.pieces.partition_point(|piece| piece.range.end <= start + SPAN_BYTES).max(first + 1);
            // A span ends where a piece begins, or with the file.
            let end = self.pieces.get(next).map_or(self.file_bytes(), |piece| piece.range.start);
            let span = start..end;
            start = end;
            Some(span)
        })
    }

    /// Makes a span of the file, in place of zeros.
    fn make(&self, span: &Range<u64>, mut out: &mut [u8]) {
        let header = &self.layout.header;
        if span.start == 0 {
            out[..header.len()].copy_from_slice(header);
        }
        let first = self.pieces.partition_point(|piece| piece.range.start < span.start);
        let end = self.pieces.partition_point(|piece| piece.range.start < span.end);
        let mut at = span.start;
        let mut work = Vec::with_capacity(end - first);
        for piece in &self.pieces[first..end] {
            let (_, rest) = out.split_at_mut((piece.range.start - at) as usize);
            let (bytes, rest) = rest.split_at_mut((piece.range.end - piece.range.start) as usize);
            work.push((piece, bytes));
            (at, out) = (piece.range.end, rest);
        }
        work.into_par_iter().for_each(|(piece, bytes)| piece.make(bytes));
    }
}
