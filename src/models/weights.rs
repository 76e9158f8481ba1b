//! Strict loading of `safetensors` by memory map: every tensor that a model asks for must be there in its shape, and none may
//! be left over. Nothing is ever filled in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use candle_core::{DType, Device, Tensor};
use memmap2::{Mmap, UncheckedAdvice};
use safetensors::{Dtype, SafeTensors};

use crate::kernels::{Stored, Weight};

/// Why weights do not fit a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// A file is no safetensors file, or is cut short.
    #[error("`{file}` cannot be read: {message}")]
    Unreadable {
        /// Its path.
        file: String,
        /// Why.
        message: String,
    },
    /// The model has a tensor that the file lacks.
    #[error("the weights lack the tensor `{tensor}`")]
    Missing {
        /// Its name, as the file's layout would have it.
        tensor: String,
    },
    /// The file has tensors that the model lacks.
    #[error("the weights hold {} tensors that this model does not have: {}", tensors.len(), few(tensors))]
    Unexpected {
        /// Their names.
        tensors: Vec<String>,
    },
    /// A tensor has another shape.
    #[error("the tensor `{tensor}` is {got:?}, the configuration asks for {expected:?}")]
    Shape {
        /// Its name in the file.
        tensor: String,
        /// By the configuration.
        expected: Vec<usize>,
        /// In the file.
        got: Vec<usize>,
    },
    /// A tensor holds numbers of a kind that is not read.
    #[error("the tensor `{tensor}` is of type {dtype}; F32, F16 and BF16 are read")]
    Dtype {
        /// Its name in the file.
        tensor: String,
        /// The type it has.
        dtype: String,
    },
    /// The device refused.
    #[error("the tensor `{tensor}` cannot be put on the device: {message}")]
    Device {
        /// Its name in the file.
        tensor: String,
        /// What the device said.
        message: String,
    },
}

/// The first of many names, for a message of one line.
fn few(tensors: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = tensors.len().saturating_sub(SHOWN);
    let shown = tensors.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// The tensors of a checkpoint that have not been taken yet.
#[derive(Debug)]
pub struct Weights {
    files: Vec<Bytes>,
    left: BTreeMap<String, Entry>,
    values: u64,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mmap),
    Static(&'static [u8]),
}

#[derive(Debug, Clone)]
struct Entry {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: std::ops::Range<usize>,
}

impl Weights {
    /// Opens files by memory map. A file must not be cut short while it is read: the system ends a process that looks at
    /// pages which are no longer there.
    ///
    /// # Errors
    /// A file cannot be opened, or is no whole safetensors file.
    pub fn open(files: &[PathBuf]) -> Result<Self, WeightsError> {
        let mut weights = Self { files: Vec::new(), left: BTreeMap::new(), values: 0 };
        for path in files {
            let name = path.display().to_string();
            let unreadable =
                |error: std::io::Error| WeightsError::Unreadable { file: name.clone(), message: error.to_string() };
            let file = fs_err::File::open(path).map_err(unreadable)?;
            #[expect(unsafe_code, reason = "a memory map")]
            // SAFETY: the map is read only; that the file stays as it is while it is read is asked of the operator above.
            let map = unsafe { Mmap::map(file.file()) }.map_err(unreadable)?;
            weights.add(Bytes::Mapped(map), &name)?;
        }
        Ok(weights)
    }

    /// Weights inside this program; `file` is their name for messages.
    ///
    /// # Errors
    /// They are no whole safetensors file.
    pub fn from_static(bytes: &'static [u8], file: &str) -> Result<Self, WeightsError> {
        let mut weights = Self { files: Vec::new(), left: BTreeMap::new(), values: 0 };
        weights.add(Bytes::Static(bytes), file)?;
        Ok(weights)
    }

    fn add(&mut self, bytes: Bytes, name: &str) -> Result<(), WeightsError> {
        let unreadable = |message: String| WeightsError::Unreadable { file: name.to_owned(), message };
        let (header, metadata) =
            SafeTensors::read_metadata(bytes.get()).map_err(|error| unreadable(format!("{error} (is it whole?)")))?;
        let start = header + 8;
        for (tensor, info) in metadata.tensors() {
            let (from, to) = (start + info.data_offsets.0, start + info.data_offsets.1);
            if to > bytes.get().len() || from > to {
                return Err(unreadable(format!(
                    "it is cut short: `{tensor}` ends at byte {to} of {}",
                    bytes.get().len()
                )));
            }
            let entry = Entry { file: self.files.len(), dtype: info.dtype, shape: info.shape.clone(), bytes: from..to };
            self.values += info.shape.iter().product::<usize>() as u64;
            if self.left.insert(tensor.clone(), entry).is_some() {
                return Err(unreadable(format!("the tensor `{tensor}` is in two files")));
            }
        }
        self.files.push(bytes);
        Ok(())
    }

    /// Numbers in all files.
    #[must_use]
    pub fn values(&self) -> u64 {
        self.values
    }

    /// Whether a tensor of this name is there and has not been taken.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.left.contains_key(name)
    }

    /// Takes a tensor.
    ///
    /// # Errors
    /// It is missing, misshapen, of an unknown type, or the device refuses it.
    pub fn take(&mut self, name: &str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor, WeightsError> {
        self.read(name, shape, |stored, bytes| {
            Tensor::from_raw_buffer(bytes, stored, shape, device).and_then(|tensor| tensor.to_dtype(dtype))
        })
    }

    /// Takes the first `out` rows of a matrix of this shape, (rows, in), as a weight in this format. For the CPU it goes from
    /// the file into its packed form directly.
    ///
    /// # Errors
    /// As [`Weights::take`].
    pub fn take_weight(
        &mut self,
        name: &str,
        shape: [usize; 2],
        out: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Weight, WeightsError> {
        self.read(name, &shape, |stored, bytes| {
            let [rows, inner] = shape;
            let out = out.min(rows);
            let bytes = &bytes[..out * inner * stored.size_in_bytes()];
            let numbers = match stored {
                DType::F32 => Stored::F32(bytes.as_chunks().0),
                DType::BF16 => Stored::Bf16(bytes.as_chunks().0),
                _ => Stored::F16(bytes.as_chunks().0),
            };
            match device.is_cpu().then(|| Weight::pack(numbers, (out, inner), dtype)).flatten() {
                Some(weight) => Ok(weight),
                None => Weight::new(Tensor::from_raw_buffer(bytes, stored, &[out, inner], device)?.to_dtype(dtype)?),
            }
        })
    }

    /// Shows a tensor's type and bytes to `work`, and takes it off the list.
    fn read<T>(
        &mut self,
        name: &str,
        shape: &[usize],
        work: impl FnOnce(DType, &[u8]) -> candle_core::Result<T>,
    ) -> Result<T, WeightsError> {
        let Some(entry) = self.left.get(name) else { return Err(WeightsError::Missing { tensor: name.to_owned() }) };
        if entry.shape != shape {
            let (expected, got) = (shape.to_vec(), entry.shape.clone());
            return Err(WeightsError::Shape { tensor: name.to_owned(), expected, got });
        }
        let stored = match entry.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => return Err(WeightsError::Dtype { tensor: name.to_owned(), dtype: format!("{other:?}") }),
        };
        let file = &self.files[entry.file];
        let result = work(stored, &file.get()[entry.bytes.clone()])
            .map_err(|error| WeightsError::Device { tensor: name.to_owned(), message: error.to_string() })?;
        file.forget(entry.bytes.clone());
        self.left.remove(name);
        Ok(result)
    }

    /// All tensors must have been taken.
    ///
    /// # Errors
    /// Names those left over.
    pub fn finish(self) -> Result<(), WeightsError> {
        if self.left.is_empty() {
            return Ok(());
        }
        Err(WeightsError::Unexpected { tensors: self.left.into_keys().collect() })
    }
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Static(bytes) => bytes,
        }
    }

    /// Lets the system drop the pages of a tensor that has been copied, so that a checkpoint is never in memory twice.
    fn forget(&self, range: std::ops::Range<usize>) {
        if let Self::Mapped(map) = self {
            #[expect(unsafe_code, reason = "advice about a memory map")]
            // SAFETY: the map is of a file and read only: dropped pages are read again from the file when looked at.
            let advised = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) };
            if let Err(error) = advised {
                tracing::debug!(%error, "pages of the weights stay in memory");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(tensors: &[(&str, &[usize], Dtype)]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let data = vec![0u8; 1024];
        let views: Vec<_> = tensors
            .iter()
            .map(|(name, shape, dtype)| {
                let size = if *dtype == Dtype::F32 { 4 } else { 2 } * shape.iter().product::<usize>();
                (*name, safetensors::tensor::TensorView::new(*dtype, shape.to_vec(), &data[..size]).unwrap())
            })
            .collect();
        safetensors::serialize_to_file(views, None, &path).unwrap();
        (folder, path)
    }

    fn take(weights: &mut Weights, name: &str, shape: &[usize]) -> Result<Tensor, WeightsError> {
        weights.take(name, shape, DType::F32, &Device::Cpu)
    }

    #[test]
    fn missing_misshapen_and_left_over_tensors_are_named() {
        let (_folder, path) = file(&[("a", &[2, 3], Dtype::F32), ("b", &[4], Dtype::F16), ("c", &[1], Dtype::I16)]);
        let mut weights = Weights::open(&[path]).unwrap();
        assert_eq!(weights.values(), 11);
        assert_eq!(take(&mut weights, "a", &[2, 3]).unwrap().dims(), [2, 3]);
        assert_eq!(take(&mut weights, "a", &[2, 3]).unwrap_err(), WeightsError::Missing { tensor: "a".into() });
        assert!(matches!(take(&mut weights, "b", &[5]), Err(WeightsError::Shape { tensor, .. }) if tensor == "b"));
        assert_eq!(take(&mut weights, "b", &[4]).unwrap().dtype(), DType::F32, "half floats are widened");
        assert!(matches!(take(&mut weights, "c", &[1]), Err(WeightsError::Dtype { tensor, .. }) if tensor == "c"));
        assert_eq!(weights.finish().unwrap_err(), WeightsError::Unexpected { tensors: vec!["c".into()] });
    }

    #[test]
    fn a_file_cut_short_is_refused() {
        let (_folder, path) = file(&[("a", &[2, 3], Dtype::F32)]);
        let whole = fs_err::read(&path).unwrap();
        for length in [0, 4, 20, whole.len() - 1] {
            fs_err::write(&path, &whole[..length]).unwrap();
            let error = Weights::open(std::slice::from_ref(&path)).unwrap_err();
            assert!(matches!(error, WeightsError::Unreadable { .. }), "{length}: {error}");
        }
    }
}
