//! GGUF files, good and bad, as a whole: what the reader gives back and what it refuses, by message.
//! `gguf_hostile.rs` does the same at random.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::io;
use std::path::Path;

use gpu::quant::Format;
use lanemap::gguf::{Gguf, GgufWriter, OwnedValue, Value, ValueType};
use support::gguf::{
    Folder, TINY_TENSORS, every_value, find, part_name, put, rename, split_part, tensor_bytes, tensor_entry,
    tiny, with_tensor, write_split,
};

/// Opens bytes as a file, and in memory, where they are the same or the same is wrong with them.
fn open(bytes: &[u8]) -> Result<Gguf, String> {
    let folder = Folder::new();
    let path = folder.write("model.gguf", bytes);
    let file = open_path(&path);
    let memory = Gguf::in_memory(&path, bytes.len(), |out| {
        out.copy_from_slice(bytes);
        Ok(())
    });
    match (&file, memory) {
        (Ok(file), Ok(memory)) => {
            assert_eq!(memory.tensors(), file.tensors());
            assert!(memory.metadata().eq(file.metadata()));
            assert_eq!((memory.path(), memory.file_bytes()), (file.path(), file.file_bytes()));
            assert!(file.tensors().iter().all(|tensor| memory.data(tensor) == file.data(tensor)));
        }
        (file, memory) => {
            assert_eq!(memory.err().map(|error| error.to_string()).as_ref(), file.as_ref().err())
        }
    }
    file
}

/// Opens a file; an error must name it.
fn open_path(path: &Path) -> Result<Gguf, String> {
    Gguf::open(path).map_err(|error| {
        let text = error.to_string();
        assert!(!text.contains('\n'), "more than one line: {text}");
        assert!(text.contains(".gguf: "), "does not name the file: {text}");
        text
    })
}

/// The bytes must be refused in words that contain all of `parts`.
#[track_caller]
fn refused(bytes: &[u8], parts: &[&str]) {
    let error = open(bytes).expect_err("opened, but should have been refused");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn every_metadata_type_comes_back() {
    let gguf = open(&tiny().to_bytes().unwrap()).unwrap();
    let found: Vec<(&str, OwnedValue)> = gguf.metadata().map(|(key, value)| (key, value.into())).collect();
    let mut wanted = vec![("general.architecture", "llama".into())];
    wanted.extend(every_value());
    assert_eq!(found, wanted);
    for (key, value) in wanted {
        assert_eq!(gguf.get(key).map(OwnedValue::from), Some(value), "{key}");
    }
    assert_eq!(gguf.get("x.absent"), None);
    assert_eq!(gguf.get(""), None);
}

#[test]
fn a_file_in_memory_that_is_not_made_is_refused() {
    let name = Path::new("made");
    let error = Gguf::in_memory(name, 64, |_| Err(io::Error::other("no more"))).unwrap_err();
    assert_eq!(error.to_string(), "made: no more");
    let error = Gguf::in_memory(name, 64, |_| Ok(())).unwrap_err().to_string();
    assert!(error.starts_with("made: is not a GGUF file"), "{error}");
    let error = Gguf::in_memory(name, usize::MAX, |_| Ok(())).unwrap_err().to_string();
    assert!(error.starts_with("made: "), "{error}");
    let error = Gguf::in_memory(name, 0, |_| Ok(())).unwrap_err().to_string();
    assert!(error.starts_with("made: header: needs 4 bytes"), "{error}");
}

#[test]
fn tensors_come_back_with_exactly_their_bytes() {
    for alignment in [8, 32, 4096] {
        let gguf = open(&tiny().alignment(alignment).to_bytes().unwrap()).unwrap();
        assert_eq!(gguf.alignment(), u64::from(alignment));
        assert_eq!(gguf.tensors().len(), TINY_TENSORS.len());
        for (tensor, (name, dims, format)) in gguf.tensors().iter().zip(TINY_TENSORS) {
            assert_eq!((tensor.name.as_str(), tensor.dims(), tensor.format), (name, dims, format));
            assert_eq!(gguf.tensor(name), Some(tensor));
            let bytes = tensor_bytes(dims, format);
            assert_eq!(gguf.data(tensor), bytes);
            assert_eq!(tensor.byte_len(), bytes.len());
            assert_eq!(tensor.row_bytes() * tensor.rows(), bytes.len());
            assert_eq!(tensor.offset() % u64::from(alignment), 0);
            assert_eq!(gguf.data(tensor).as_ptr() as usize % 8, 0, "data can be read as f32");
        }
        let cube = gguf.tensor("blk.0.ffn_exps.weight").unwrap();
        assert_eq!((cube.row_len(), cube.rows(), cube.elements()), (32, 6, 192));
        assert_eq!(gguf.tensor("blk.0.ffn_exps"), None);
    }
}

#[test]
fn getters_convert_or_say_what_they_found() {
    let gguf = open(&tiny().to_bytes().unwrap()).unwrap();
    assert_eq!(gguf.u32("x.u8").unwrap(), Some(255));
    assert_eq!(gguf.u32("x.u32").unwrap(), Some(u32::MAX));
    assert_eq!(gguf.u32("x.absent").unwrap(), None);
    assert_eq!(gguf.f32("x.f64").unwrap(), Some(0.1));
    assert_eq!(gguf.bool("x.bool").unwrap(), Some(true));
    assert_eq!(gguf.str("general.architecture").unwrap(), Some("llama"));
    assert_eq!(
        gguf.strings("x.strings").unwrap().unwrap().collect::<Vec<_>>(),
        [b"".as_slice(), b"a", b"a\xc3\xa9\0"]
    );
    assert_eq!(gguf.f32s("x.f32s").unwrap().unwrap().collect::<Vec<_>>(), [0.5, f32::MIN_POSITIVE, -1e30]);
    assert_eq!(gguf.f32s("x.f32s").unwrap().unwrap().len(), 3);
    assert_eq!(gguf.u32s("x.no_u32").unwrap().unwrap().len(), 0);
    assert_eq!(
        gguf.array("x.bools").unwrap().unwrap().bools().unwrap().collect::<Vec<_>>(),
        [true, false, true]
    );
    let pairs: Vec<_> = gguf.array("x.pairs").unwrap().unwrap().arrays().unwrap().collect();
    assert_eq!(pairs[1].strings().unwrap().collect::<Vec<_>>(), [b"".as_slice(), b"c"]);
    assert_eq!((pairs[2].element_type(), pairs[2].len()), (ValueType::U64, 0));
    let deep = gguf.array("x.deep").unwrap().unwrap().arrays().unwrap().next().unwrap();
    let inner = deep.arrays().unwrap().next().unwrap();
    assert_eq!(inner.i32s().unwrap().collect::<Vec<_>>(), [-1, 2]);
    assert!(inner.u32s().is_none(), "-1 is no u32");
    assert_eq!(gguf.require("x.u8", Gguf::u32).unwrap(), 255);

    let fails = |error: lanemap::gguf::GgufError, parts: &[&str]| {
        let text = error.to_string();
        assert!(text.contains("model.gguf") && parts.iter().all(|part| text.contains(part)), "{text}");
    };
    fails(gguf.u32("x.u64").unwrap_err(), &["x.u64", "fits u32", "u64 18446744073709551615"]);
    fails(gguf.u32("x.i8").unwrap_err(), &["x.i8", "i8 -128"]);
    fails(gguf.u32("x.f32").unwrap_err(), &["x.f32", "f32 -0.1"]);
    fails(gguf.f32("x.u8").unwrap_err(), &["x.u8", "a float", "u8 255"]);
    fails(gguf.bool("x.u8").unwrap_err(), &["x.u8", "a bool"]);
    fails(gguf.str("x.bytes").unwrap_err(), &["x.bytes", "UTF-8", r"\xf0\x9f"]);
    fails(gguf.array("x.string").unwrap_err(), &["x.string", "an array", r"\u{1b}[2J"]);
    fails(gguf.strings("x.f32s").err().unwrap(), &["x.f32s", "array of strings", "array of 3 f32"]);
    fails(gguf.require("x.absent", Gguf::u32).unwrap_err(), &["x.absent", "missing"]);
}

/// O1: a download that stopped early. `gguf_hostile.rs` cuts at every other byte.
#[test]
fn o1_truncated() {
    let bytes = tiny().to_bytes().unwrap();
    let data = open(&bytes).unwrap().tensors()[0].offset() as usize;
    let key = find(&bytes, b"general.architecture");
    let entry = tensor_entry(&bytes, "blk.0.attn_norm.weight");
    for (cut, parts) in [
        (0, ["needs 4 bytes", "0 are left"]),
        (3, ["needs 4 bytes", "3 are left"]),
        (4, ["needs 4 bytes", "0 are left"]),
        (23, ["needs 8 bytes", "7 are left"]),
        (24, ["number of tensors", "the count 4"]),
        (key + 3, ["number of tensors", "11 are left"]),
        (entry.offset + 5, ["table entry of tensor \"blk.0.attn_norm.weight\"", "needs 8 bytes"]),
        (data, ["\"token_embd.weight\" needs 340 bytes", "only 0"]),
        (data + 339, ["\"token_embd.weight\" needs 340 bytes", "only 339"]),
        (data + 352 + 255, ["\"blk.0.attn_norm.weight\" needs 256 bytes", "only 255"]),
    ] {
        refused(&bytes[..cut], &parts);
    }
    // The last tensor fills its aligned slot: one byte or a KiB less is too little.
    refused(
        &bytes[..bytes.len() - 1],
        &["\"blk.0.ffn_exps.weight\" needs 384 bytes", "only 383", "truncated"],
    );
    refused(&bytes[..bytes.len() - 1024], &["\"blk.0.attn_norm.weight\" needs 256 bytes", "only 64"]);
    // Bytes after the last tensor are padding of whatever length.
    assert!(open(&[bytes.as_slice(), &[7; 1000]].concat()).is_ok());
}

/// O2: counts that no file of this size can hold.
#[test]
fn o2_huge_counts() {
    let header = |tensors: u64, entries: u64| {
        [b"GGUF".as_slice(), &3_u32.to_le_bytes(), &tensors.to_le_bytes(), &entries.to_le_bytes()].concat()
    };
    for huge in [500_000_000, 1 << 32, 1 << 63, u64::MAX] {
        let count = format!("the count {huge} is larger than the bytes left");
        refused(&header(0, huge), &["number of metadata entries", &count]);
        refused(&header(huge, 0), &["number of tensors", &count]);
    }
    // Each alone would fit, both do not.
    let both = [header(10, 20), vec![0; 500]].concat();
    refused(&both, &["number of metadata entries", "the count 20 is larger than the bytes left", "only 100"]);

    let numbers = OwnedValue::array(ValueType::U8, [1_u8, 2]);
    let mut array = GgufWriter::new().meta("numbers", numbers).to_bytes().unwrap();
    let at = find(&array, b"numbers") + 7 + 4 + 4;
    assert_eq!(array[at], 2, "the array's count");
    put(&mut array, at, &(1_u64 << 40).to_le_bytes());
    refused(
        &array,
        &["value of metadata key \"numbers\"", "the count 1099511627776 is larger than the bytes left"],
    );

    let mut string = GgufWriter::new().meta("s", "text").to_bytes().unwrap();
    let at = find(&string, b"text") - 8;
    put(&mut string, at, &(1_u64 << 62).to_le_bytes());
    refused(&string, &["value of metadata key \"s\"", "needs 4611686018427387904 bytes"]);
}

/// O3: other versions, and the other byte order.
#[test]
fn o3_versions() {
    let bytes = tiny().to_bytes().unwrap();
    for (version, parts) in [
        (0, ["version 0 is not supported", "2 and 3"]),
        (1, ["version 1 is not supported", "convert"]),
        (4, ["version 4 is not supported", "2 and 3"]),
        (0x0300_0000, ["big-endian", "0x03000000"]),
    ] {
        let mut other = bytes.clone();
        put(&mut other, 4, &u32::to_le_bytes(version));
        refused(&other, &parts);
    }
    let (two, three) = (open(&tiny().version(2).to_bytes().unwrap()).unwrap(), open(&bytes).unwrap());
    assert_eq!((two.version(), three.version()), (2, 3));
    assert!(two.metadata().eq(three.metadata()));
    assert_eq!(two.tensors(), three.tensors());
}

#[test]
fn other_files_are_told_apart() {
    refused(b"version https://git-lfs", &["not a GGUF file", "Git LFS"]);
    refused(b"<!DOCTYPE html>", &["not a GGUF file", "web page"]);
    refused(b"tjgg\0\0\0\0", &["not a GGUF file", "before GGUF"]);
    refused(b"\x1b[2Jxxxx", &["not a GGUF file", r#""\u{1b}[2J""#]);
    let folder = Folder::new();
    let path = folder.path("absent.gguf");
    assert!(open_path(&path).unwrap_err().contains("No such file"));
    let path = folder.path("folder.gguf");
    std::fs::create_dir(&path).unwrap();
    assert!(open_path(&path).unwrap_err().contains("not a regular file"));
}

/// O4: empty arrays of every type, wherever they stand.
#[test]
fn o4_empty_arrays() {
    let empty = |element_type| OwnedValue::Array(element_type, Vec::new());
    let mut writer = GgufWriter::new();
    for element_type in ValueType::ALL {
        writer = writer
            .meta(&format!("x.empty.{element_type}"), empty(element_type))
            .meta(element_type.name(), 1_u8);
    }
    writer = writer.meta("tokenizer.ggml.merges", empty(ValueType::String));
    let gguf = open(&writer.to_bytes().unwrap()).unwrap();
    assert_eq!(gguf.metadata().count(), 27);
    let merges = gguf.array("tokenizer.ggml.merges").unwrap().unwrap();
    assert!(merges.is_empty());
    assert_eq!(merges.element_type(), ValueType::String);
    assert_eq!(merges.strings().unwrap().count(), 0);
}

/// O5: zeros (and too many, or too large) where a shape stands.
#[test]
fn o5_impossible_shapes() {
    let name = "blk.0.ffn_exps.weight";
    let bytes = tiny().to_bytes().unwrap();
    let entry = tensor_entry(&bytes, name);
    let patched = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        put(&mut bytes, at, new);
        bytes
    };
    for index in 0..3 {
        refused(&patched(entry.dims + 8 * index, &[0; 8]), &[name, "dimension of zero"]);
    }
    refused(&patched(entry.n_dims, &[0]), &[name, "0 dimensions"]);
    refused(&patched(entry.n_dims, &[5]), &[name, "5 dimensions"]);
    refused(&patched(entry.n_dims, &[255; 4]), &[name, "4294967295 dimensions"]);
    // 2^63 * 2 wraps to nothing; 2^63 values of two bytes do so in bytes; 2^40 merely do not fit.
    refused(&patched(entry.dims, &(1_u64 << 63).to_le_bytes()), &[name, "larger than any file"]);
    let large = [(1_u64 << 62).to_le_bytes(), 2_u64.to_le_bytes(), 1_u64.to_le_bytes()].concat();
    refused(&patched(entry.dims, &large), &[name, "larger than any file"]);
    refused(&patched(entry.dims, &(1_u64 << 40).to_le_bytes()), &[name, "needs 13194139533312 bytes"]);
}

/// O6: a name that stands twice.
#[test]
fn o6_duplicates() {
    let two = with_tensor(GgufWriter::new(), "blk.0.attn_q.weight", &[8], Format::F32);
    let two = with_tensor(two, "blk.0.attn_k.weight", &[8], Format::F32);
    let mut bytes = two.to_bytes().unwrap();
    rename(&mut bytes, "blk.0.attn_k.weight", "blk.0.attn_q.weight");
    refused(&bytes, &["tensor \"blk.0.attn_q.weight\" appears twice"]);

    let two = GgufWriter::new().meta("general.alignment", 32_u32).meta("general.alignmenu", 64_u32);
    let mut bytes = two.to_bytes().unwrap();
    rename(&mut bytes, "general.alignmenu", "general.alignment");
    refused(&bytes, &["key \"general.alignment\" appears twice"]);
}

#[test]
fn tensors_share_no_byte() {
    let mut bytes = tiny().to_bytes().unwrap();
    let at = tensor_entry(&bytes, "blk.0.attn_norm.weight").offset;
    put(&mut bytes, at, &320_u64.to_le_bytes());
    refused(&bytes, &["\"token_embd.weight\" and \"blk.0.attn_norm.weight\" overlap"]);
    put(&mut bytes, at, &321_u64.to_le_bytes());
    refused(&bytes, &["\"blk.0.attn_norm.weight\" starts at offset 321", "alignment 32"]);
    put(&mut bytes, at, &(u64::MAX - 31).to_le_bytes());
    refused(&bytes, &["\"blk.0.attn_norm.weight\" needs 256 bytes", "only 0"]);
}

#[test]
fn alignment_is_checked() {
    let with = |value: OwnedValue| GgufWriter::new().meta("general.alignment", value).to_bytes().unwrap();
    for bad in [0_u32, 1, 4, 24, 1 << 21, u32::MAX] {
        refused(&with(bad.into()), &["general.alignment is", &bad.to_string()]);
    }
    refused(&with("32".into()), &["general.alignment is", "string \"32\""]);
    refused(&with((-32_i32).into()), &["general.alignment is", "i32 -32"]);
    assert_eq!(open(&with(8_u32.into())).unwrap().alignment(), 8);
    assert_eq!(open(&with(64_u64.into())).unwrap().alignment(), 64);
}

#[test]
fn metadata_is_checked() {
    let mut bytes = GgufWriter::new().meta("key", true).to_bytes().unwrap();
    let at = find(&bytes, b"key");
    put(&mut bytes, at + 7, &[2]);
    refused(&bytes, &["value of metadata key \"key\"", "2 is not a bool"]);
    put(&mut bytes, at + 3, &13_u32.to_le_bytes());
    refused(&bytes, &["value of metadata key \"key\"", "unknown value type 13"]);
    put(&mut bytes, at, b"\xffab");
    refused(&bytes, &["key of metadata entry 1 of 1", "not UTF-8"]);
    put(&mut bytes, at - 8, &[0]);
    refused(&bytes, &["key of metadata entry 1 of 1", "is empty"]);

    let nested = |depth: usize| {
        let innermost = OwnedValue::array(ValueType::U8, [7_u8]);
        let value = (1..depth).fold(innermost, |inner, _| OwnedValue::array(ValueType::Array, [inner]));
        open(&GgufWriter::new().meta("deep", value).to_bytes().unwrap())
    };
    let eight = nested(8).unwrap();
    let mut value = eight.get("deep").unwrap();
    while let Value::Array(array) = value {
        value = array.values().next().unwrap();
    }
    assert_eq!(value, Value::U8(7));
    let error = nested(9).unwrap_err();
    assert!(error.contains("\"deep\"") && error.contains("nested more than 8 deep"), "{error}");
}

/// O8: tensor types that are not ours, by name where they have one.
#[test]
fn o8_tensor_types() {
    let name = "blk.0.attn_norm.weight";
    let bytes = tiny().to_bytes().unwrap();
    let at = tensor_entry(&bytes, name).format;
    for (id, known) in [
        (36_u32, "IQ4_NL_4_4"),
        (39, "MXFP4"),
        (16, "IQ2_XXS"),
        (34, "TQ1_0"),
        (255, "not a known format"),
        (1 << 31, "not a known format"),
    ] {
        let mut bytes = bytes.clone();
        put(&mut bytes, at, &id.to_le_bytes());
        refused(&bytes, &[name, &format!("type {id}"), known]);
    }
    // Type 20 is IQ4_NL, which is one of ours: 64 values are two blocks.
    let mut bytes = bytes.clone();
    put(&mut bytes, at, &20_u32.to_le_bytes());
    assert_eq!(open(&bytes).unwrap().tensor(name).unwrap().format, Format::IQ4_NL);
}

/// O9: rows of 896 values divide into blocks of 32, not into those of 256.
#[test]
fn o9_row_length() {
    let writer = with_tensor(GgufWriter::new(), "blk.0.attn_q.weight", &[896, 896], Format::Q8_0);
    let writer = with_tensor(writer, "blk.0.attn_k.weight", &[896, 128], Format::Q5_0);
    let mut bytes = writer.to_bytes().unwrap();
    assert_eq!(open(&bytes).unwrap().tensors()[1].row_bytes(), 896 / 32 * 22);
    let at = tensor_entry(&bytes, "blk.0.attn_k.weight").format;
    put(&mut bytes, at, &Format::Q4_K.id().to_le_bytes());
    refused(&bytes, &["\"blk.0.attn_k.weight\"", "rows of 896", "blocks of 256", "Q4_K"]);
}

/// O7, the good case: all parts beside each other.
#[test]
fn o7_split_opens_from_its_first_part() {
    let folder = Folder::new();
    let paths = write_split(&folder, 3);
    let gguf = open_path(&paths[0]).unwrap();
    assert_eq!(gguf.path(), paths[0]);
    assert!(gguf.parts().eq(&paths));
    assert_eq!(gguf.str("general.name").unwrap(), Some("split"));
    for index in 0..3 {
        let tensor = gguf.tensor(&format!("part.{index}")).unwrap();
        assert_eq!(tensor.part(), index);
        assert_eq!(gguf.data(tensor), tensor_bytes(tensor.dims(), Format::Q8_0));
    }
    let sizes = paths.iter().map(|path| path.metadata().unwrap().len());
    assert_eq!(gguf.file_bytes(), sizes.sum::<u64>());
}

/// O7, the bad cases.
#[test]
fn o7_split_faults() {
    #[track_caller]
    fn fails(path: &Path, parts: &[&str]) {
        let error = open_path(path).expect_err("opened, but should have been refused");
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?} are not all in: {error}");
    }
    let split = |damage: &dyn Fn(&Folder), parts: &[&str]| {
        let folder = Folder::new();
        let paths = write_split(&folder, 3);
        damage(&folder);
        fails(&paths[0], parts);
    };
    let [one, two, three] = [0, 1, 2].map(|index| part_name(index, 3));

    // Missing, swapped, copied, shortened.
    split(&|f| std::fs::remove_file(f.path(&two)).unwrap(), &[&two, "part 2 of 3", "missing"]);
    let swap = |f: &Folder, a: &str, b: &str| {
        let (first, second) = (std::fs::read(f.path(a)).unwrap(), std::fs::read(f.path(b)).unwrap());
        f.write(a, &second);
        f.write(b, &first);
    };
    split(&|f| swap(f, &two, &three), &[&two, "named part 2 of 3", "it is part 3 of 3"]);
    split(&|f| swap(f, &one, &two), &[&one, "named part 1 of 3", "it is part 2 of 3"]);
    split(&|f| _ = std::fs::copy(f.path(&two), f.path(&three)).unwrap(), &[&three, "named part 3 of 3"]);
    let shorten = |f: &Folder| {
        let bytes = std::fs::read(f.path(&three)).unwrap();
        f.write(&three, &bytes[..bytes.len() - 40]);
    };
    split(&shorten, &[&three, "\"part.2\" needs 204 bytes", "truncated"]);

    // Counts that disagree, a tensor in two parts, a part that is no part.
    let wrong_total = |f: &Folder| _ = f.write(&one, &split_part(0, 3, 4).to_bytes().unwrap());
    split(&wrong_total, &[&one, "hold 3 tensors", "split.tensors.count says 4"]);
    let wrong_count = |f: &Folder| _ = f.write(&two, &split_part(1, 2, 3).to_bytes().unwrap());
    split(&wrong_count, &[&two, "named part 2 of 3", "part 2 of 2"]);
    let more = |f: &Folder| _ = f.write(&one, &split_part(0, 4, 3).to_bytes().unwrap());
    split(&more, &[&one, "named part 1 of 3", "part 1 of 4"]);
    let again = |f: &Folder| {
        let mut bytes = split_part(2, 3, 3).to_bytes().unwrap();
        rename(&mut bytes, "part.2", "part.1");
        f.write(&three, &bytes);
    };
    split(&again, &[&three, "\"part.1\" appears twice", &two]);
    let whole = |f: &Folder| _ = f.write(&two, &tiny().to_bytes().unwrap());
    split(&whole, &[&two, "named part 2 of 3", "part 1 of 1"]);

    // A later part, a part under another name, all parts in one file.
    let folder = Folder::new();
    let paths = write_split(&folder, 3);
    fails(&paths[1], &[&two, "part 2 of 3", "open the first part", &one]);
    let parts = paths.iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>();
    fails(&folder.write("whole.gguf", &parts.concat()), &["part 1 of 3", "-00001-of-00003.gguf", "cat"]);
    fails(&folder.write("b.gguf", &parts[1]), &["part 2 of 3", "-00002-of-00003.gguf"]);
    let last = GgufWriter::new().meta("split.no", u64::MAX).meta("split.count", u64::MAX).to_bytes().unwrap();
    fails(&folder.write("last.gguf", &last), &["part 18446744073709551615 of 18446744073709551615"]);
    fails(&folder.write("m-99999-of-99999.gguf", &last), &["named part 99999 of 99999"]);
    // Named as a part by somebody, but a whole model by its own account.
    let path = folder.write("m-00001-of-00002.gguf", &tiny().to_bytes().unwrap());
    fails(&path, &["named part 1 of 2", "part 1 of 1"]);
    // A split into one is no split.
    assert!(open_path(&folder.write("m-00001-of-00001.gguf", &tiny().to_bytes().unwrap())).is_ok());
    assert!(open_path(&folder.write("one.gguf", &split_part(0, 1, 1).to_bytes().unwrap())).is_ok());
}

/// A name in a hostile file must not reach the terminal as it is.
#[test]
fn names_in_messages_are_escaped_and_cut() {
    let name = format!("\u{1b}[2J\n{}", "x".repeat(5000));
    let mut bytes = with_tensor(GgufWriter::new(), &name, &[4], Format::F32).to_bytes().unwrap();
    let at = tensor_entry(&bytes, &name).format;
    put(&mut bytes, at, &[99]);
    let error = open(&bytes).unwrap_err();
    assert!(error.contains(r"\u{1b}[2J\nxxx") && error.len() < 500, "{error}");
}
