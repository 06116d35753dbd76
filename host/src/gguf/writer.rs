//! Writes GGUF files: for tests, and for models that lanemap makes itself.

use std::io::{self, ErrorKind, Write};
use std::ops::Range;

use gpu::quant::Format;

use super::escape::escape;
use super::owned::{OwnedValue, encode_string};
use super::part::{DEFAULT_ALIGNMENT, MAX_ALIGNMENT};
use super::tensor::MAX_DIMS;

/// A GGUF file to be written: metadata and tensors in the order in which they are added.
///
/// ```
/// use gpu::quant::Format;
/// use lanemap::gguf::GgufWriter;
///
/// # fn main() -> std::io::Result<()> {
/// let bytes = GgufWriter::new()
///     .meta("general.architecture", "llama")
///     .meta("llama.block_count", 1_u32)
///     .tensor("output_norm.weight", &[2], Format::F32, [1.0_f32, 1.0].map(f32::to_le_bytes).concat())
///     .to_bytes()?;
/// assert!(bytes.starts_with(b"GGUF"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct GgufWriter {
    version: u32,
    alignment: u32,
    metadata: Vec<(String, OwnedValue)>,
    tensors: Vec<Tensor>,
}

/// The most bytes that are believed of a file's tensors: a quarter of what 64 bits count, so that sums of
/// two of them and a header do not overflow.
const MAX_DATA_BYTES: u64 = 1 << 62;

#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    dims: Vec<u64>,
    format: Format,
    /// `None`: only its place is written here.
    bytes: Option<Vec<u8>>,
}

/// A file without the bytes of its tensors: what comes before them, and where they belong. Between them
/// are zeros.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The file's first bytes, up to the first tensor's.
    pub header: Vec<u8>,
    /// Where each tensor's bytes stand in the file, in the order in which the tensors were added.
    pub tensors: Vec<Range<u64>>,
    /// Bytes of the whole file.
    pub file_bytes: u64,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self { version: 3, alignment: DEFAULT_ALIGNMENT as u32, metadata: Vec::new(), tensors: Vec::new() }
    }
}

impl GgufWriter {
    /// A file of version 3 with the default alignment of 32 bytes and nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the version: 2 or 3.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sets the tensors' alignment in bytes, a power of two from 8. Unless it is the default, it is
    /// written as the first metadata entry, `general.alignment`.
    #[must_use]
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = alignment;
        self
    }

    /// Adds a metadata entry.
    #[must_use]
    pub fn meta(mut self, key: &str, value: impl Into<OwnedValue>) -> Self {
        self.metadata.push((key.to_owned(), value.into()));
        self
    }

    /// Adds a tensor: its shape with the row length first, and its blocks, row after row.
    #[must_use]
    pub fn tensor(self, name: &str, dims: &[u64], format: Format, bytes: impl Into<Vec<u8>>) -> Self {
        self.push(name, dims, format, Some(bytes.into()))
    }

    /// Adds a tensor whose bytes the caller writes, to the place that [`Self::layout`] gives. A file with
    /// such a tensor need not fit into memory.
    #[must_use]
    pub fn tensor_without_bytes(self, name: &str, dims: &[u64], format: Format) -> Self {
        self.push(name, dims, format, None)
    }

    fn push(mut self, name: &str, dims: &[u64], format: Format, bytes: Option<Vec<u8>>) -> Self {
        self.tensors.push(Tensor { name: name.to_owned(), dims: dims.to_vec(), format, bytes });
        self
    }

    /// The file without the tensors' bytes.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::InvalidInput`] if a reader would refuse the file: a version or an alignment
    /// that is not possible, an array with an element of another type, a name used twice, a shape that
    /// its format cannot have or that does not match the tensor's bytes.
    pub fn layout(&self) -> io::Result<Layout> {
        self.check()?;
        let alignment = u64::from(self.alignment);
        let mut data = Vec::with_capacity(self.tensors.len());
        let mut at = 0_u64;
        for tensor in &self.tensors {
            let bytes = tensor.check()?;
            data.push(at..at + bytes);
            at = (at + bytes)
                .checked_next_multiple_of(alignment)
                .filter(|&end| end <= MAX_DATA_BYTES)
                .ok_or_else(|| {
                    invalid(format!("tensor \"{}\" ends past the end of any file", tensor.shown()))
                })?;
        }
        let mut header = self.header(&data)?;
        header.resize(header.len().next_multiple_of(self.alignment as usize), 0);
        let start = header.len() as u64;
        let tensors = data.into_iter().map(|range| start + range.start..start + range.end).collect();
        Ok(Layout { header, tensors, file_bytes: start + at })
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of [`Self::layout`]; one of the same kind if a tensor was added without bytes; otherwise an
    /// error of `out`.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let layout = self.layout()?;
        let bytes = self.tensors.iter().map(|tensor| {
            tensor
                .bytes
                .as_deref()
                .ok_or_else(|| invalid(format!("tensor \"{}\" was added without its bytes", tensor.shown())))
        });
        let bytes = bytes.collect::<io::Result<Vec<_>>>()?;
        out.write_all(&layout.header)?;
        for bytes in bytes {
            out.write_all(bytes)?;
            let padding = bytes.len().next_multiple_of(self.alignment as usize) - bytes.len();
            out.write_all(&vec![0; padding])?;
        }
        Ok(())
    }

    /// The file's bytes.
    ///
    /// # Errors
    /// As [`Self::write_to`].
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes)?;
        Ok(bytes)
    }

    fn check(&self) -> io::Result<()> {
        if !matches!(self.version, 2 | 3) {
            return Err(invalid(format!("GGUF version {} cannot be written; 2 and 3 can", self.version)));
        }
        if !self.alignment.is_power_of_two() || !(8..=MAX_ALIGNMENT).contains(&self.alignment.into()) {
            return Err(invalid(format!("alignment {} is not a power of two from 8", self.alignment)));
        }
        let keys = self.metadata.iter().map(|(key, _)| key.as_str());
        if let Some(key) = first_twin(keys.chain(self.own_entry().map(|(key, _)| key))) {
            return Err(invalid(format!(
                "metadata key \"{}\" is empty or used twice",
                escape(key.as_bytes(), 100)
            )));
        }
        if let Some(name) = first_twin(self.tensors.iter().map(|tensor| tensor.name.as_str())) {
            return Err(invalid(format!(
                "tensor name \"{}\" is empty or used twice",
                escape(name.as_bytes(), 100)
            )));
        }
        Ok(())
    }

    /// The entry that the writer adds by itself.
    fn own_entry(&self) -> Option<(&str, OwnedValue)> {
        let needed = u64::from(self.alignment) != DEFAULT_ALIGNMENT;
        needed.then(|| ("general.alignment", self.alignment.into()))
    }

    /// What comes before the tensors' bytes; `data` has their places from there on.
    fn header(&self, data: &[Range<u64>]) -> io::Result<Vec<u8>> {
        let mut out = b"GGUF".to_vec();
        let own = self.own_entry();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64 + u64::from(own.is_some())).to_le_bytes());
        let entries = self.metadata.iter().map(|(key, value)| (key.as_str(), value));
        for (key, value) in own.iter().map(|(key, value)| (*key, value)).chain(entries) {
            encode_string(key.as_bytes(), &mut out);
            out.extend(value.value_type().id().to_le_bytes());
            value.encode(&mut out).map_err(|(array, element)| {
                invalid(format!(
                    "metadata key \"{key}\": an array of {array} holds an element of type {element}"
                ))
            })?;
        }
        for (tensor, data) in self.tensors.iter().zip(data) {
            encode_string(tensor.name.as_bytes(), &mut out);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            out.extend(tensor.dims.iter().flat_map(|dim| dim.to_le_bytes()));
            out.extend(tensor.format.id().to_le_bytes());
            out.extend(data.start.to_le_bytes());
        }
        Ok(out)
    }
}

impl Tensor {
    /// The tensor's bytes, counted; at most [`MAX_DATA_BYTES`].
    fn check(&self) -> io::Result<u64> {
        let Self { dims, format, bytes, .. } = self;
        let product = dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim)).unwrap_or(0);
        let whole = (1..=MAX_DIMS).contains(&dims.len())
            && product > 0
            && dims[0].is_multiple_of(format.block_elements() as u64);
        let wanted = (product / format.block_elements() as u64)
            .checked_mul(format.block_bytes() as u64)
            .filter(|&wanted| whole && wanted <= MAX_DATA_BYTES);
        match (wanted, bytes.as_ref().map(Vec::len)) {
            (Some(wanted), None) => Ok(wanted),
            (Some(wanted), Some(found)) if wanted == found as u64 => Ok(wanted),
            (None, None) => Err(invalid(format!(
                "tensor \"{}\": there is no {format} tensor of shape {dims:?}",
                self.shown()
            ))),
            (_, Some(found)) => Err(invalid(format!(
                "tensor \"{}\": {found} bytes are no {format} tensor of shape {dims:?}",
                self.shown()
            ))),
        }
    }

    /// The name, fit for a message.
    fn shown(&self) -> String {
        escape(self.name.as_bytes(), 100)
    }
}

/// The first name in order of the alphabet that is empty or stands there twice.
fn first_twin<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    match names.first() {
        Some(&"") => Some(""),
        _ => names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]),
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;
    use crate::gguf::ValueType;

    #[test]
    fn the_layout_is_that_of_the_specification() {
        let bytes = GgufWriter::new()
            .version(2)
            .alignment(8)
            .meta("k", OwnedValue::array(ValueType::Bool, [true, false]))
            .tensor("t", &[2, 1], Format::F16, [1, 2, 3, 4])
            .to_bytes()
            .unwrap();
        let wanted: Vec<u8> = [
            b"GGUF".as_slice(),
            &[2, 0, 0, 0],
            &[1, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0, 0, 0, 0, 0],
            &[17, 0, 0, 0, 0, 0, 0, 0],
            b"general.alignment",
            &[4, 0, 0, 0],
            &[8, 0, 0, 0],
            &[1, 0, 0, 0, 0, 0, 0, 0],
            b"k",
            &[9, 0, 0, 0],
            &[7, 0, 0, 0],
            &[2, 0, 0, 0, 0, 0, 0, 0],
            &[1, 0],
            &[1, 0, 0, 0, 0, 0, 0, 0],
            b"t",
            &[2, 0, 0, 0],
            &[2, 0, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0],
            &[1, 2, 3, 4],
            &[0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(wanted.len() % 8, 0, "the expected file is padded as it should be");
        assert_eq!(bytes, wanted);
    }

    #[test]
    fn bytes_put_where_the_layout_says_make_the_same_file() {
        let (first, second) = ([7_u8; 10], [9_u8; 34]);
        let writer = || GgufWriter::new().alignment(64).meta("k", "v");
        let whole = writer().tensor("a", &[5], Format::F16, first).tensor("b", &[32], Format::Q8_0, second);
        let layout = writer()
            .tensor_without_bytes("a", &[5], Format::F16)
            .tensor_without_bytes("b", &[32], Format::Q8_0)
            .layout()
            .unwrap();
        let mut file = vec![0; layout.file_bytes as usize];
        file[..layout.header.len()].copy_from_slice(&layout.header);
        for (range, bytes) in layout.tensors.into_iter().zip([&first[..], &second[..]]) {
            file[range.start as usize..range.end as usize].copy_from_slice(bytes);
        }
        assert_eq!(file, whole.to_bytes().unwrap());
    }

    #[test]
    fn what_a_reader_would_refuse_is_not_written() {
        let refused = |writer: GgufWriter, part: &str| {
            let error = writer.to_bytes().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(part), "{error}");
        };
        let new = GgufWriter::new;
        refused(new().version(1), "version 1");
        refused(new().alignment(24), "alignment 24");
        refused(new().alignment(4), "alignment 4");
        refused(new().meta("a", 1_u8).meta("a", 2_u8), "\"a\"");
        refused(new().alignment(64).meta("general.alignment", 64_u32), "general.alignment");
        refused(new().meta("a", OwnedValue::array(ValueType::U8, [1_u32])), "array of u8");
        refused(new().tensor("t", &[2], Format::F32, vec![0; 9]), "[2]");
        refused(new().tensor("t", &[16], Format::Q8_0, vec![0; 17]), "Q8_0");
        refused(new().tensor("t", &[], Format::F32, vec![0; 4]), "[]");
        refused(new().tensor("t", &[4, 0], Format::F32, vec![]), "[4, 0]");
        refused(new().tensor("t", &[u64::MAX, 2], Format::F32, vec![]), "\"t\"");
        refused(new().tensor_without_bytes("t", &[16], Format::Q8_0), "[16]");
        refused(new().tensor_without_bytes("t", &[1 << 61, 4], Format::F32), "\"t\"");
        let half = new().tensor_without_bytes("s", &[1 << 60], Format::F16);
        refused(half.tensor_without_bytes("t", &[1 << 60], Format::F32), "\"t\" ends past");
        refused(new().tensor_without_bytes("t", &[1], Format::F32), "without its bytes");
    }
}
