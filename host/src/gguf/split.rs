//! Models split over several files, `NAME-00001-of-0000N.gguf` and so on.
//!
//! Each part is a GGUF file of its own with some of the tensors, its number (`split.no`, from zero)
//! and the number of parts (`split.count`); the first also holds the model's metadata and the number
//! of tensors in all parts (`split.tensors.count`). Convention of llama.cpp's `gguf-split`.

use std::path::{Path, PathBuf};

use super::error::{ErrorKind, GgufError};
use super::part::Part;
use super::tensor::TensorInfo;

/// Takes a file and, if it is the first part of a split model, opens all others.
pub(super) fn complete(
    first: Part,
    mut tensors: Vec<TensorInfo>,
) -> Result<(Vec<Part>, Vec<TensorInfo>), GgufError> {
    let path = &first.path.clone();
    let fail = |kind| GgufError::new(path, kind);
    let says = Place::from_metadata(&first)?;
    let named = PartName::parse(path);
    match (&says, &named) {
        (None, None) => return Ok((vec![first], tensors)),
        (None, Some(name)) if name.place.count == 1 => return Ok((vec![first], tensors)),
        (Some(says), None) if says.count == 1 => return Ok((vec![first], tensors)),
        _ => {}
    }
    // A file that says nothing of parts is a whole model.
    let says = says.unwrap_or(Place { index: 0, count: 1 });
    let Some(name) = named else {
        return Err(fail(ErrorKind::PartName { number: says.number(), count: says.count }));
    };
    check_place(path, &name, says)?;
    if says.index != 0 {
        let first = name.sibling(0);
        return Err(fail(ErrorKind::NotFirstPart { number: says.number(), count: says.count, first }));
    }

    let mut parts = vec![first];
    for index in 1..says.count {
        let path = name.sibling(index);
        if !path.exists() {
            let kind = ErrorKind::MissingPart { number: index + 1, count: says.count };
            return Err(GgufError::new(&path, kind));
        }
        // `Place` bounds the count by 99999.
        let (part, more) = Part::open(&path, index as u32)?;
        let found = Place::from_metadata(&part)?.unwrap_or(Place { index: 0, count: 1 });
        check_place(&path, &PartName { place: Place { index, ..says }, ..name.clone() }, found)?;
        parts.push(part);
        tensors.extend(more);
    }
    if let Some(wanted) = non_negative(&parts[0], "split.tensors.count")?
        && wanted != tensors.len() as u64
    {
        return Err(fail(ErrorKind::SplitTensorCount { wanted, found: tensors.len() }));
    }
    Ok((parts, tensors))
}

fn check_place(path: &Path, name: &PartName, says: Place) -> Result<(), GgufError> {
    if name.place == says {
        return Ok(());
    }
    let kind = ErrorKind::PartMismatch {
        named: name.place.number(),
        named_count: name.place.count,
        number: says.number(),
        count: says.count,
    };
    Err(GgufError::new(path, kind))
}

fn non_negative(part: &Part, key: &str) -> Result<Option<u64>, GgufError> {
    part.typed(key, "an integer from zero", |v| v.as_integer().and_then(|v| u64::try_from(v).ok()))
}

/// Which part of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// From zero, as in `split.no`; the file's name counts from one.
    index: u64,
    count: u64,
}

impl Place {
    /// From one, as people count. The file may claim any index.
    fn number(self) -> u64 {
        self.index.saturating_add(1)
    }

    /// What the file says of itself; `None` if it says that it is no part of anything.
    fn from_metadata(part: &Part) -> Result<Option<Self>, GgufError> {
        let index = non_negative(part, "split.no")?.unwrap_or(0);
        Ok(match non_negative(part, "split.count")? {
            None | Some(0) => None,
            Some(count) => Some(Self { index, count }),
        })
    }
}

/// The name of a part, taken to pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PartName {
    /// The path as it was given.
    path: PathBuf,
    /// The file's name up to the first hyphen of `-00001-of-0000N.gguf`.
    stem: String,
    place: Place,
}

impl PartName {
    /// `None` if the file is not named like a part.
    fn parse(path: &Path) -> Option<Self> {
        let (stem, count) = path.file_name()?.to_str()?.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = stem.rsplit_once('-')?;
        let number_of = |digits: &str| -> Option<u64> {
            let plain = digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse().ok().filter(|_| plain)
        };
        let place = Place { index: number_of(number)?.checked_sub(1)?, count: number_of(count)? };
        Some(Self { path: path.to_path_buf(), stem: stem.to_owned(), place })
    }

    /// The path of another part.
    fn sibling(&self, index: u64) -> PathBuf {
        self.path.with_file_name(format!("{}-{:05}-of-{:05}.gguf", self.stem, index + 1, self.place.count))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    #[test]
    fn part_names() {
        let name = PartName::parse(Path::new("models/a-b-00002-of-00013.gguf")).unwrap();
        assert_eq!(name.place, Place { index: 1, count: 13 });
        assert_eq!(name.sibling(12), Path::new("models/a-b-00013-of-00013.gguf"));
        for other in [
            "a.gguf",
            "a-0001-of-0002.gguf",
            "a-00000-of-00002.gguf",
            "a-+0001-of-00002.gguf",
            "a-00001-of-00002.bin",
        ] {
            assert_eq!(PartName::parse(Path::new(other)), None, "{other}");
        }
    }
}
