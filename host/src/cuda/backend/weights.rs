//! A model's weights in the memory of a queue.

use std::ops::Range;

use gpu::product::PanelF16;
use gpu::product::panels::paired;
use gpu::quant::Format;
use gpu::quant::planes::{pack_row, plane_row_bytes};

use super::rows::Rows;
use crate::backend::BackendError;
use crate::cuda::ops::PlaneMatrix;
use crate::cuda::{Buffer, ModelQueue, Part};
use crate::model::{self, Model};

/// A matrix in planes.
#[derive(Debug)]
pub(super) struct Matrix {
    bytes: Buffer<u8>,
    pub(super) format: Format,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Matrix {
    pub(super) fn planes(&self) -> PlaneMatrix<'_> {
        let Self { ref bytes, format, rows, columns } = *self;
        PlaneMatrix { bytes: bytes.view(), format, rows, columns }
    }

    /// Elements of its panels.
    pub(super) fn unpacked_elements(&self) -> usize {
        PanelF16::elements(self.rows, self.columns)
    }

    /// Elements of the panels of two matrices like this one.
    pub(super) fn paired_elements(&self) -> usize {
        PanelF16::elements(paired(self.rows as u32) as usize, self.columns)
    }
}

/// A vector that not every model has.
pub(super) type Optional = Option<Buffer<f32>>;

/// See [`model::Layer`]. What stands for a matrix and for a vector, a [`Visit`] says.
#[derive(Debug)]
pub(super) struct Layer<M = Matrix, V = Buffer<f32>> {
    pub(super) attention_norm: V,
    pub(super) query: M,
    pub(super) key: M,
    pub(super) value: M,
    pub(super) query_bias: Option<V>,
    pub(super) key_bias: Option<V>,
    pub(super) value_bias: Option<V>,
    pub(super) query_norm: Option<V>,
    pub(super) key_norm: Option<V>,
    pub(super) attention_output: M,
    pub(super) attention_output_bias: Option<V>,
    pub(super) post_attention_norm: Option<V>,
    pub(super) feed_forward_norm: V,
    pub(super) gate: M,
    pub(super) up: M,
    pub(super) down: M,
    pub(super) post_feed_forward_norm: Option<V>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Weights<M = Matrix, V = Buffer<f32>> {
    pub(super) embedding: M,
    /// None where it is the embedding.
    output: Option<M>,
    pub(super) output_norm: V,
    pub(super) layers: Vec<Layer<M, V>>,
}

impl Weights {
    /// Uploads them, straight from the file's map. `progress` is told bytes done and in all.
    ///
    /// # Errors
    /// [`BackendError::DeviceMemory`]; [`BackendError::Device`].
    pub(super) fn upload(
        queue: &impl ModelQueue,
        model: &Model,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, BackendError> {
        let mut listed = Listed::default();
        visit(model, &mut listed)?;
        let Listed { parts, sources } = listed;
        let total = parts.iter().map(|part| part.len as u64).sum();
        if let Some(free) = queue.free_memory()?
            && free < total
        {
            return Err(BackendError::DeviceMemory {
                device: queue.name(),
                what: "the weights of the model".to_owned(),
                needed: total,
                free,
                remedy: "take a model with fewer weights or smaller blocks, or --device cpu",
            });
        }
        let mut done = 0;
        let mut advance = |bytes: usize| {
            done += bytes as u64;
            progress(done, total);
        };
        let make = |index: usize, range: Range<usize>, out: &mut [u8]| {
            let matrix = match sources[index] {
                Source::Matrix(matrix) => matrix,
                Source::Vector(values) => {
                    return out.copy_from_slice(&bytemuck::cast_slice(values)[range]);
                }
            };
            let (format, row, file) = (matrix.format(), parts[index].unit, model.bytes(matrix));
            let blocks = matrix.columns() / format.block_elements() * format.block_bytes();
            let first = range.start / row;
            for (out, blocks) in out.chunks_exact_mut(row).zip(file[first * blocks..].chunks_exact(blocks)) {
                pack_row(format, blocks, out).expect("a row of the file and its planes");
            }
        };
        let buffers = queue.upload(&parts, &make, &mut advance)?;
        visit(model, &mut Uploaded(buffers.into_iter()))
    }

    /// The most elements that are unpacked at a time: a matrix of a layer, or gate and up.
    pub(super) fn most_unpacked(&self) -> usize {
        let unpacked = self.layers.iter().flat_map(|layer| {
            let Layer { query, key, value, attention_output, gate, down, .. } = layer;
            let alone = [query, key, value, attention_output, down];
            alone.map(Matrix::unpacked_elements).into_iter().chain([gate.paired_elements()])
        });
        unpacked.max().unwrap_or(0)
    }

    /// The output projection.
    pub(super) fn output(&self) -> &Matrix {
        self.output.as_ref().unwrap_or(&self.embedding)
    }
}

/// Whether the output projection is the embedding.
fn is_tied(model: &Model) -> bool {
    model.output() == model.embedding()
}

/// What becomes of a model's weights, one by one.
trait Visit<'a> {
    type Matrix;
    type Vector;

    fn matrix(&mut self, name: String, matrix: &'a model::Matrix) -> Result<Self::Matrix, BackendError>;
    fn vector(&mut self, name: String, values: &'a [f32]) -> Self::Vector;
}

/// Every weight once, with a name for errors, always in the same order.
fn visit<'a, T: Visit<'a>>(
    model: &'a Model,
    to: &mut T,
) -> Result<Weights<T::Matrix, T::Vector>, BackendError> {
    let embedding = to.matrix("token_embd".to_owned(), model.embedding())?;
    let output = match is_tied(model) {
        true => None,
        false => Some(to.matrix("output".to_owned(), model.output())?),
    };
    let output_norm = to.vector("output_norm".to_owned(), model.output_norm());
    let layer = |(index, layer): (usize, &'a model::Layer)| {
        let name = |role: &str| format!("blk.{index}.{role}");
        let mut matrix = |role, matrix| to.matrix(name(role), matrix);
        let (query, key, value) =
            (matrix("attn_q", &layer.query)?, matrix("attn_k", &layer.key)?, matrix("attn_v", &layer.value)?);
        let attention_output = matrix("attn_output", &layer.attention_output)?;
        let (gate, up, down) = (
            matrix("ffn_gate", &layer.gate)?,
            matrix("ffn_up", &layer.up)?,
            matrix("ffn_down", &layer.down)?,
        );
        let mut vector = |role, values| to.vector(name(role), values);
        let attention_norm = vector("attn_norm", &layer.attention_norm);
        let feed_forward_norm = vector("ffn_norm", &layer.feed_forward_norm);
        let mut optional =
            |role, values: &'a Option<Vec<f32>>| values.as_ref().map(|values| vector(role, values));
        Ok(Layer {
            attention_norm,
            query,
            key,
            value,
            query_bias: optional("attn_q.bias", &layer.query_bias),
            key_bias: optional("attn_k.bias", &layer.key_bias),
            value_bias: optional("attn_v.bias", &layer.value_bias),
            query_norm: optional("attn_q_norm", &layer.query_norm),
            key_norm: optional("attn_k_norm", &layer.key_norm),
            attention_output,
            attention_output_bias: optional("attn_output.bias", &layer.attention_output_bias),
            post_attention_norm: optional("post_attention_norm", &layer.post_attention_norm),
            feed_forward_norm,
            gate,
            up,
            down,
            post_feed_forward_norm: optional("post_ffw_norm", &layer.post_feed_forward_norm),
        })
    };
    let layers = model.layers().iter().enumerate().map(layer).collect::<Result<_, BackendError>>()?;
    Ok(Weights { embedding, output, output_norm, layers })
}

/// Where a part's bytes come from.
enum Source<'a> {
    Matrix(&'a model::Matrix),
    Vector(&'a [f32]),
}

/// The parts of an upload.
#[derive(Default)]
struct Listed<'a> {
    parts: Vec<Part>,
    sources: Vec<Source<'a>>,
}

impl<'a> Visit<'a> for Listed<'a> {
    type Matrix = ();
    type Vector = ();

    fn matrix(&mut self, name: String, matrix: &'a model::Matrix) -> Result<(), BackendError> {
        self.parts.push(part(name, matrix)?);
        self.sources.push(Source::Matrix(matrix));
        Ok(())
    }

    fn vector(&mut self, name: String, values: &'a [f32]) {
        self.parts.push(Part { name, len: size_of_val(values), unit: size_of::<f32>() });
        self.sources.push(Source::Vector(values));
    }
}

/// What was uploaded, a buffer for each part.
struct Uploaded(std::vec::IntoIter<Buffer<u8>>);

impl Uploaded {
    fn next(&mut self) -> Buffer<u8> {
        self.0.next().expect("as many buffers as parts")
    }
}

impl<'a> Visit<'a> for Uploaded {
    type Matrix = Matrix;
    type Vector = Buffer<f32>;

    fn matrix(&mut self, _: String, matrix: &'a model::Matrix) -> Result<Matrix, BackendError> {
        let (format, rows, columns) = (matrix.format(), matrix.rows(), matrix.columns());
        Ok(Matrix { bytes: self.next(), format, rows, columns })
    }

    fn vector(&mut self, _: String, _: &'a [f32]) -> Buffer<f32> {
        self.next().cast()
    }
}

/// The buffer of a matrix.
fn part(name: String, matrix: &model::Matrix) -> Result<Part, BackendError> {
    let unit = plane_row_bytes(matrix.format(), matrix.columns()).map(|bytes| bytes as usize);
    let len = unit.and_then(|unit| unit.checked_mul(matrix.rows()));
    match (unit, len) {
        (Some(unit), Some(len)) => Ok(Part { name, len, unit }),
        _ => Err(BackendError::Unsupported {
            what: format!("{name}: rows of {} {} elements are too long", matrix.columns(), matrix.format()),
        }),
    }
}
