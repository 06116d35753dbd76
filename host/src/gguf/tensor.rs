//! The tensor table: names, shapes, formats and where the bytes lie.

use gpu::quant::Format;

use super::cursor::{Cursor, Fault};
use super::error::{ErrorKind, shown};

/// The most dimensions a tensor may have.
pub(super) const MAX_DIMS: usize = 4;

/// A tensor of a GGUF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name, unique in the file.
    pub name: String,
    /// How its values are stored.
    pub format: Format,
    n_dims: u8,
    dims: [u64; MAX_DIMS],
    part: u32,
    offset: u64,
}

impl TensorInfo {
    /// The shape, 1 to 4 numbers above zero. The first is the row length: it varies fastest.
    #[must_use]
    pub fn dims(&self) -> &[u64] {
        &self.dims[..usize::from(self.n_dims)]
    }

    /// Values in a row, a multiple of the format's block size.
    #[must_use]
    pub fn row_len(&self) -> usize {
        self.dims[0] as usize
    }

    /// The number of rows: the product of all dimensions but the first.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.dims()[1..].iter().product::<u64>() as usize
    }

    /// The number of values.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.row_len() * self.rows()
    }

    /// Bytes of one row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.format.bytes_of(self.row_len())
    }

    /// Bytes of the whole tensor.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.row_bytes() * self.rows()
    }

    /// Which file of a split model holds it: 0 is the first, as in [`super::Gguf::parts`].
    #[must_use]
    pub fn part(&self) -> usize {
        self.part as usize
    }

    /// Where its bytes start, counted from the start of that file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads entry `index` of `count` of the table. The offset is still that of the file: counted
    /// from the start of the data, which is known only after the table's last entry.
    fn read(
        cursor: &mut Cursor<'_>,
        (index, count): (usize, usize),
        part: u32,
        alignment: u64,
    ) -> Result<Self, ErrorKind> {
        let name = cursor.name().map_err(|fault| ErrorKind::Malformed {
            place: format!("name of tensor {} of {count}", index + 1),
            fault,
        })?;
        let tensor = || shown(name);
        let malformed = |fault: Fault| ErrorKind::Malformed {
            place: format!("table entry of tensor \"{}\"", tensor()),
            fault,
        };

        let count = cursor.u32().map_err(malformed)?;
        let n_dims = u8::try_from(count)
            .ok()
            .filter(|&n| (1..=MAX_DIMS).contains(&n.into()))
            .ok_or_else(|| ErrorKind::DimensionCount { tensor: tensor(), count })?;
        let mut dims = [1; MAX_DIMS];
        for dim in &mut dims[..usize::from(n_dims)] {
            *dim = cursor.u64().map_err(malformed)?;
        }
        let shape = || dims[..usize::from(n_dims)].to_vec();
        if dims.contains(&0) {
            return Err(ErrorKind::ZeroDimension { tensor: tensor(), dims: shape() });
        }

        let id = cursor.u32().map_err(malformed)?;
        let format = Format::from_id(id).ok_or_else(|| ErrorKind::TensorType { tensor: tensor(), id })?;
        if !dims[0].is_multiple_of(format.block_elements() as u64) {
            return Err(ErrorKind::RowLength { tensor: tensor(), row_len: dims[0], format });
        }
        // From here on the sizes of `TensorInfo` are products that are known to fit.
        let fits = |product: Option<u64>| product.and_then(|p| usize::try_from(p).ok()).is_some();
        let elements = dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim));
        let bytes = elements
            .and_then(|n| (n / format.block_elements() as u64).checked_mul(format.block_bytes() as u64));
        if !fits(elements) || !fits(bytes) {
            return Err(ErrorKind::TensorOverflow { tensor: tensor(), dims: shape(), format });
        }

        let offset = cursor.u64().map_err(malformed)?;
        if !offset.is_multiple_of(alignment) {
            return Err(ErrorKind::Misaligned { tensor: tensor(), offset, alignment });
        }
        Ok(Self { name: name.to_owned(), format, n_dims, dims, part, offset })
    }

    /// Turns the table's offset into one from the start of the file and checks that the bytes
    /// are there.
    fn place(&mut self, data_start: u64, file_len: u64) -> Result<(), ErrorKind> {
        let wanted = self.byte_len() as u64;
        let at = data_start.saturating_add(self.offset);
        let present = file_len.saturating_sub(at);
        if wanted > present {
            return Err(ErrorKind::TensorTruncated { tensor: shown(&self.name), at, wanted, present });
        }
        self.offset = at;
        Ok(())
    }
}

/// Reads the table of `count` tensors at the cursor; the data follow it at the next multiple of
/// `alignment`. `part` is the file's place in a split model.
///
/// `count` must have been checked against the file's size: it is allocated here.
pub(super) fn read_table(
    cursor: &mut Cursor<'_>,
    count: usize,
    part: u32,
    alignment: u64,
) -> Result<Vec<TensorInfo>, ErrorKind> {
    let file_len = (cursor.offset() + cursor.left()) as u64;
    let mut tensors = Vec::with_capacity(count);
    for index in 0..count {
        tensors.push(TensorInfo::read(cursor, (index, count), part, alignment)?);
    }
    let data_start = (cursor.offset() as u64).next_multiple_of(alignment);
    for tensor in &mut tensors {
        tensor.place(data_start, file_len)?;
    }
    Ok(tensors)
}

/// The tensors' indices ordered by name, so that one is found by bisection.
///
/// # Errors
/// A name that appears twice, or two tensors of one file that share a byte.
pub(super) fn index(tensors: &[TensorInfo]) -> Result<Vec<u32>, Conflict> {
    let mut order: Vec<u32> = (0..tensors.len()).map(|i| i as u32).collect();
    let at = |i: u32| &tensors[i as usize];

    order.sort_unstable_by_key(|&i| (at(i).part, at(i).offset));
    let overlap = order
        .windows(2)
        .map(|pair| (pair[0], pair[1]))
        .find(|&(a, b)| at(a).part == at(b).part && at(a).offset + at(a).byte_len() as u64 > at(b).offset);

    order.sort_unstable_by(|&a, &b| at(a).name.cmp(&at(b).name).then(a.cmp(&b)));
    let twin = order.windows(2).map(|pair| (pair[0], pair[1])).find(|&(a, b)| at(a).name == at(b).name);

    // A tensor listed twice overlaps itself: the name says more.
    match (twin, overlap) {
        (Some((a, b)), _) => Err(Conflict::SameName(a as usize, b as usize)),
        (None, Some((a, b))) => Err(Conflict::Overlap(a as usize, b as usize)),
        (None, None) => Ok(order),
    }
}

/// Two tensors that cannot both be right, by their indices.
pub(super) enum Conflict {
    SameName(usize, usize),
    Overlap(usize, usize),
}
