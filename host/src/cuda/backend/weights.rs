//! A model's weights in the memory of a queue.

use std::ops::Range;

use gpu::product::PanelF16;
use gpu::quant::Format;
use gpu::quant::planes::{pack_row, plane_row_bytes};

use super::rows::Rows;
use crate::backend::BackendError;
use crate::cuda::ops::PlaneMatrix;
use crate::cuda::{Buffer, Error, ModelQueue, Part};
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
}

/// A vector that not every model has.
pub(super) type Optional = Option<Buffer<f32>>;

/// See [`model::Layer`].
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) attention_norm: Buffer<f32>,
    pub(super) query: Matrix,
    pub(super) key: Matrix,
    pub(super) value: Matrix,
    pub(super) query_bias: Optional,
    pub(super) key_bias: Optional,
    pub(super) value_bias: Optional,
    pub(super) query_norm: Optional,
    pub(super) key_norm: Optional,
    pub(super) attention_output: Matrix,
    pub(super) attention_output_bias: Optional,
    pub(super) post_attention_norm: Optional,
    pub(super) feed_forward_norm: Buffer<f32>,
    pub(super) gate: Matrix,
    pub(super) up: Matrix,
    pub(super) down: Matrix,
    pub(super) post_feed_forward_norm: Optional,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Weights {
    pub(super) embedding: Matrix,
    /// None where it is the embedding.
    output: Option<Matrix>,
    pub(super) output_norm: Buffer<f32>,
    pub(super) layers: Vec<Layer>,
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
        let matrices = matrices(model);
        let parts =
            matrices.iter().map(|(name, matrix)| part(name, matrix)).collect::<Result<Vec<_>, _>>()?;
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
            let (matrix, row) = (matrices[index].1, parts[index].unit);
            let (format, file) = (matrix.format(), model.bytes(matrix));
            let blocks = matrix.columns() / format.block_elements() * format.block_bytes();
            let first = range.start / row;
            for (out, blocks) in out.chunks_exact_mut(row).zip(file[first * blocks..].chunks_exact(blocks)) {
                pack_row(format, blocks, out).expect("a row of the file and its planes");
            }
        };
        let buffers = queue.upload(&parts, &make, &mut advance)?;
        let mut matrices = matrices.iter().zip(buffers).map(|((_, matrix), bytes)| Matrix {
            bytes,
            format: matrix.format(),
            rows: matrix.rows(),
            columns: matrix.columns(),
        });
        let mut next = || matrices.next().expect("as many buffers as parts");
        let embedding = next();
        let output = (!is_tied(model)).then(&mut next);
        let vector = |name: &str, values: &[f32]| queue.input(name, values);
        let optional = |name: &str, values: &Option<Vec<f32>>| {
            values.as_ref().map(|values| vector(name, values)).transpose()
        };
        let layer = |layer: &model::Layer| {
            Ok::<_, Error>(Layer {
                query: next(),
                key: next(),
                value: next(),
                attention_output: next(),
                gate: next(),
                up: next(),
                down: next(),
                attention_norm: vector("attn_norm", &layer.attention_norm)?,
                query_bias: optional("attn_q.bias", &layer.query_bias)?,
                key_bias: optional("attn_k.bias", &layer.key_bias)?,
                value_bias: optional("attn_v.bias", &layer.value_bias)?,
                query_norm: optional("attn_q_norm", &layer.query_norm)?,
                key_norm: optional("attn_k_norm", &layer.key_norm)?,
                attention_output_bias: optional("attn_output.bias", &layer.attention_output_bias)?,
                post_attention_norm: optional("post_attention_norm", &layer.post_attention_norm)?,
                feed_forward_norm: vector("ffn_norm", &layer.feed_forward_norm)?,
                post_feed_forward_norm: optional("post_ffw_norm", &layer.post_feed_forward_norm)?,
            })
        };
        let layers = model.layers().iter().map(layer).collect::<Result<_, _>>()?;
        Ok(Self { embedding, output, output_norm: vector("output_norm", model.output_norm())?, layers })
    }

    /// The elements of the largest matrix of a layer, unpacked.
    pub(super) fn most_unpacked(&self) -> usize {
        let matrices = self.layers.iter().flat_map(|layer| {
            let Layer { query, key, value, attention_output, gate, up, down, .. } = layer;
            [query, key, value, attention_output, gate, up, down]
        });
        matrices.map(|matrix| PanelF16::elements(matrix.rows, matrix.columns)).max().unwrap_or(0)
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

/// Every matrix once, with a name for errors, in the order in which [`Weights::upload`] takes them.
fn matrices(model: &Model) -> Vec<(String, &model::Matrix)> {
    let mut matrices = vec![("token_embd".to_owned(), model.embedding())];
    if !is_tied(model) {
        matrices.push(("output".to_owned(), model.output()));
    }
    for (index, layer) in model.layers().iter().enumerate() {
        let own = [
            ("attn_q", &layer.query),
            ("attn_k", &layer.key),
            ("attn_v", &layer.value),
            ("attn_output", &layer.attention_output),
            ("ffn_gate", &layer.gate),
            ("ffn_up", &layer.up),
            ("ffn_down", &layer.down),
        ];
        matrices.extend(own.map(|(role, matrix)| (format!("blk.{index}.{role}"), matrix)));
    }
    matrices
}

/// The buffer of a matrix.
fn part(name: &str, matrix: &model::Matrix) -> Result<Part, BackendError> {
    let unit = plane_row_bytes(matrix.format(), matrix.columns()).map(|bytes| bytes as usize);
    let len = unit.and_then(|unit| unit.checked_mul(matrix.rows()));
    match (unit, len) {
        (Some(unit), Some(len)) => Ok(Part { name: name.to_owned(), len, unit }),
        _ => Err(BackendError::Unsupported {
            what: format!("{name}: rows of {} {} elements are too long", matrix.columns(), matrix.format()),
        }),
    }
}
