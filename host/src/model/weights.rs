//! The tensors of a decoder by their role, with checked shapes.

use std::cell::RefCell;
use std::collections::HashSet;

use gpu::quant::{Format, dequantize_row};

use crate::gguf::{Gguf, TensorInfo};
use crate::model::{Config, ModelError};

/// A matrix in the file, row major; a product with it takes [`Matrix::columns`] inputs and gives
/// [`Matrix::rows`] outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix(pub(super) TensorInfo);

impl Matrix {
    /// How the rows are stored.
    #[must_use]
    pub fn format(&self) -> Format {
        self.0.format
    }

    /// Outputs.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.0.rows()
    }

    /// Inputs: the length of a row.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.0.row_len()
    }
}

/// The weights of one decoder layer. `Option` where architectures differ.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are the roles; shapes follow from the configuration")]
pub struct Layer {
    pub attention_norm: Vec<f32>,
    pub query: Matrix,
    pub key: Matrix,
    pub value: Matrix,
    pub query_bias: Option<Vec<f32>>,
    pub key_bias: Option<Vec<f32>>,
    pub value_bias: Option<Vec<f32>>,
    /// RMS norm of each query head, `head_dim` long.
    pub query_norm: Option<Vec<f32>>,
    /// RMS norm of each key head, `head_dim` long.
    pub key_norm: Option<Vec<f32>>,
    pub attention_output: Matrix,
    pub attention_output_bias: Option<Vec<f32>>,
    /// RMS norm of the attention's output before it joins the residual stream.
    pub post_attention_norm: Option<Vec<f32>>,
    pub feed_forward_norm: Vec<f32>,
    pub gate: Matrix,
    pub up: Matrix,
    pub down: Matrix,
    /// RMS norm of the feed-forward's output before it joins the residual stream.
    pub post_feed_forward_norm: Option<Vec<f32>>,
}

impl Layer {
    pub(super) fn load(tensors: &Tensors<'_>, config: &Config, index: usize) -> Result<Self, ModelError> {
        let (width, hidden) = (config.width, config.feed_forward);
        let (query_width, kv_width) = (config.query_width(), config.kv_width());
        let name = |role: &str| format!("blk.{index}.{role}");
        let matrix = |role: &str, columns, rows| tensors.matrix(&name(role), columns, rows);
        let vector = |role: &str, len| tensors.vector(&name(role), len);
        let own = config.architecture.own_tensors();
        let optional = |role: &str, len| match own.contains(&role) {
            true => tensors.vector(&name(role), len).map(Some),
            false => tensors.optional_vector(&name(role), len),
        };
        Ok(Self {
            attention_norm: vector("attn_norm.weight", width)?,
            query: matrix("attn_q.weight", width, query_width)?,
            key: matrix("attn_k.weight", width, kv_width)?,
            value: matrix("attn_v.weight", width, kv_width)?,
            query_bias: optional("attn_q.bias", query_width)?,
            key_bias: optional("attn_k.bias", kv_width)?,
            value_bias: optional("attn_v.bias", kv_width)?,
            query_norm: optional("attn_q_norm.weight", config.head_dim)?,
            key_norm: optional("attn_k_norm.weight", config.head_dim)?,
            attention_output: matrix("attn_output.weight", query_width, width)?,
            attention_output_bias: optional("attn_output.bias", width)?,
            post_attention_norm: optional("post_attention_norm.weight", width)?,
            feed_forward_norm: vector("ffn_norm.weight", width)?,
            gate: matrix("ffn_gate.weight", width, hidden)?,
            up: matrix("ffn_up.weight", width, hidden)?,
            down: matrix("ffn_down.weight", hidden, width)?,
            post_feed_forward_norm: optional("post_ffw_norm.weight", width)?,
        })
    }
}

/// The file's tensors, looked up by name and expected shape.
pub(super) struct Tensors<'a> {
    gguf: &'a Gguf,
    found: RefCell<HashSet<&'a str>>,
}

impl<'a> Tensors<'a> {
    pub(super) fn new(gguf: &'a Gguf) -> Self {
        Self { gguf, found: RefCell::default() }
    }

    /// Refuses a file that holds more than was looked up: a bias or an adapter that is passed over
    /// would show in the text and nowhere else.
    pub(super) fn check_all_found(&self) -> Result<(), ModelError> {
        let found = self.found.borrow();
        match self.gguf.tensors().iter().find(|tensor| !found.contains(tensor.name.as_str())) {
            None => Ok(()),
            Some(TensorInfo { name, .. }) => {
                Err(ModelError::UnknownTensor { path: self.gguf.path().to_owned(), tensor: name.clone() })
            }
        }
    }

    fn find(&self, name: &str, dims: &[u64]) -> Result<Option<&'a TensorInfo>, ModelError> {
        let Some(tensor) = self.gguf.tensor(name) else { return Ok(None) };
        self.found.borrow_mut().insert(&tensor.name);
        if tensor.dims() == dims {
            Ok(Some(tensor))
        } else {
            Err(ModelError::Shape {
                path: self.gguf.path().to_owned(),
                tensor: name.to_owned(),
                found: tensor.dims().to_vec(),
                expected: dims.to_vec(),
            })
        }
    }

    fn missing(&self, name: &str) -> ModelError {
        ModelError::MissingTensor { path: self.gguf.path().to_owned(), tensor: name.to_owned() }
    }

    pub(super) fn optional_matrix(
        &self,
        name: &str,
        columns: usize,
        rows: usize,
    ) -> Result<Option<Matrix>, ModelError> {
        let found = self.find(name, &[columns as u64, rows as u64])?;
        Ok(found.cloned().map(Matrix))
    }

    pub(super) fn matrix(&self, name: &str, columns: usize, rows: usize) -> Result<Matrix, ModelError> {
        self.optional_matrix(name, columns, rows)?.ok_or_else(|| self.missing(name))
    }

    /// A one-dimensional tensor as f32.
    pub(super) fn optional_vector(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, ModelError> {
        let Some(tensor) = self.find(name, &[len as u64])? else { return Ok(None) };
        // Blocks are a fraction of their values' size: a small file could ask for a large copy.
        if tensor.format.block_elements() > 1 {
            return Err(ModelError::VectorFormat {
                path: self.gguf.path().to_owned(),
                tensor: name.to_owned(),
                format: tensor.format,
            });
        }
        let mut values = vec![0.0; len];
        dequantize_row(tensor.format, self.gguf.data(tensor), &mut values)
            .expect("the reader checked the tensor's length against its format");
        Ok(Some(values))
    }

    pub(super) fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.optional_vector(name, len)?.ok_or_else(|| self.missing(name))
    }
}
