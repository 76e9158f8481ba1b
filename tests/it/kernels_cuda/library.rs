//! The kernels as a shared library: compiled once for all tests, loaded, and called as the driver would call them.
#![expect(unsafe_code, reason = "a library in C++ is loaded and called, on memory that it allocates")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fs::{self, File};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};
use sha2::{Digest as _, Sha256};

use super::Format;

/// Memory as a kernel sees it. Right after its end nothing may be touched: a kernel that does ends the test.
pub(super) struct Buffer {
    place: *mut u8,
    bytes: usize,
}

/// A plain number that a buffer may hold.
pub(super) trait Number: Copy {}
impl Number for u8 {}
impl Number for u32 {}
impl Number for i32 {}
impl Number for f32 {}
impl Number for bf16 {}
impl Number for f16 {}

impl Buffer {
    /// With these numbers.
    pub(super) fn of<N: Number>(numbers: &[N]) -> Self {
        let buffer = Self::filled(size_of_val(numbers));
        // SAFETY: the buffer was allocated with as many bytes as the numbers have, and nothing else knows of it.
        unsafe { std::ptr::copy_nonoverlapping(numbers.as_ptr().cast(), buffer.place, buffer.bytes) };
        buffer
    }

    /// With the numbers of a tensor in a format.
    pub(super) fn tensor(x: &Tensor, format: Format) -> Self {
        let x = x.flatten_all().unwrap().to_dtype(format.dtype()).unwrap();
        match format {
            Format::F32 => Self::of(&x.to_vec1::<f32>().unwrap()),
            Format::Bf16 => Self::of(&x.to_vec1::<bf16>().unwrap()),
            Format::F16 => Self::of(&x.to_vec1::<f16>().unwrap()),
        }
    }

    /// For `count` numbers of a format, all of them not numbers until they are written.
    pub(super) fn empty(count: usize, format: Format) -> Self {
        Self::filled(count * format.dtype().size_in_bytes())
    }

    /// For `count` numbers of 32 bits.
    pub(super) fn words(count: usize) -> Self {
        Self::filled(count * 4)
    }

    /// For bytes, all of whose bits are set: NaN in each number format.
    pub(super) fn filled(bytes: usize) -> Self {
        // SAFETY: any number of bytes may be asked for.
        let place = unsafe { (library().allocate)(bytes) }.cast::<u8>();
        assert!(!place.is_null(), "no memory for {bytes} bytes");
        // SAFETY: the library has just allocated so many bytes there.
        unsafe { place.write_bytes(0xff, bytes) };
        Self { place, bytes }
    }

    pub(super) fn read<N: Number>(&self) -> Vec<N> {
        let count = self.bytes / size_of::<N>();
        // SAFETY: the buffer has as many bytes, which are initialised; every pattern of bits is a number; reading them one by one
        // asks for no alignment.
        (0..count).map(|i| unsafe { self.place.cast::<N>().add(i).read_unaligned() }).collect()
    }

    /// Its numbers in f32.
    pub(super) fn to_tensor(&self, shape: &[usize], format: Format) -> Tensor {
        let x = match format {
            Format::F32 => Tensor::from_vec(self.read::<f32>(), shape, &Device::Cpu),
            Format::Bf16 => Tensor::from_vec(self.read::<bf16>(), shape, &Device::Cpu),
            Format::F16 => Tensor::from_vec(self.read::<f16>(), shape, &Device::Cpu),
        };
        x.unwrap().to_dtype(DType::F32).unwrap()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `place` came from the library's allocation of as many bytes and is given back once.
        unsafe { (library().release)(self.place.cast(), self.bytes) };
    }
}

/// A call of a kernel with its arguments in order, on buffers that stay until it has run.
pub(super) struct Launch<'a> {
    name: String,
    arguments: Vec<[u8; 8]>,
    sizes: Vec<usize>,
    buffers: PhantomData<&'a Buffer>,
}

impl<'a> Launch<'a> {
    /// Of a kernel that knows one number format.
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), arguments: Vec::new(), sizes: Vec::new(), buffers: PhantomData }
    }

    /// Of a kernel's variant for a number format.
    pub(super) fn of(name: &str, format: Format) -> Self {
        Self::new(&format!("{name}_{}", format.suffix()))
    }

    fn argument<const SIZE: usize>(mut self, bytes: [u8; SIZE]) -> Self {
        let mut argument = [0; 8];
        argument[..SIZE].copy_from_slice(&bytes);
        self.arguments.push(argument);
        self.sizes.push(SIZE);
        self
    }

    pub(super) fn buffer(self, buffer: &'a Buffer) -> Self {
        self.argument((buffer.place as usize).to_ne_bytes())
    }

    /// From the `bytes`th byte of a buffer on.
    pub(super) fn within(self, buffer: &'a Buffer, bytes: usize) -> Self {
        assert!(bytes <= buffer.bytes);
        self.argument((buffer.place as usize + bytes).to_ne_bytes())
    }

    pub(super) fn optional(self, buffer: Option<&'a Buffer>) -> Self {
        self.argument(buffer.map_or(0, |buffer| buffer.place as usize).to_ne_bytes())
    }

    pub(super) fn int(self, number: usize) -> Self {
        self.argument(i32::try_from(number).unwrap().to_ne_bytes())
    }

    pub(super) fn long(self, number: usize) -> Self {
        self.argument(i64::try_from(number).unwrap().to_ne_bytes())
    }

    pub(super) fn float(self, number: f32) -> Self {
        self.argument(number.to_ne_bytes())
    }

    /// Runs it on a grid (x, y, z) of blocks of (x, y) threads.
    #[track_caller]
    pub(super) fn run(self, grid: [usize; 3], block: [usize; 2]) {
        let count = |number: usize| c_uint::try_from(number).unwrap();
        let (grid, block) = (grid.map(count), [count(block[0]), count(block[1]), 1]);
        let name = CString::new(self.name).unwrap();
        let arguments: Vec<*const c_void> = self.arguments.iter().map(|argument| argument.as_ptr().cast()).collect();
        let library = library();
        // SAFETY: name, grid and block are what the library's interface says; it checks number and sizes of the arguments; the
        // buffers among them are borrowed until here, and what a kernel does past their ends is what is tested.
        let failed = unsafe {
            (library.launch)(
                name.as_ptr(),
                grid.as_ptr(),
                block.as_ptr(),
                arguments.as_ptr(),
                self.sizes.as_ptr(),
                arguments.len(),
            )
        };
        // SAFETY: the message is a string that stays until the next call on this thread.
        let message = || unsafe { CStr::from_ptr((library.failure)()) }.to_string_lossy().into_owned();
        assert!(failed == 0, "{}", message());
    }
}

type LaunchFunction = unsafe extern "C" fn(
    *const c_char,
    *const c_uint,
    *const c_uint,
    *const *const c_void,
    *const usize,
    usize,
) -> c_int;

struct Library {
    launch: LaunchFunction,
    failure: unsafe extern "C" fn() -> *const c_char,
    allocate: unsafe extern "C" fn(usize) -> *mut c_void,
    release: unsafe extern "C" fn(*mut c_void, usize),
    /// Keeps the functions where they are.
    _loaded: libloading::Library,
}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| load(&build()))
}

fn load(path: &Path) -> Library {
    // SAFETY: the library is ours, and nothing runs when it is loaded.
    let loaded = unsafe { libloading::Library::new(path) }.unwrap();
    // SAFETY: these are the types that kernels/host/launch.cpp gives the functions.
    unsafe {
        Library {
            launch: *loaded.get(b"tapline_launch").unwrap(),
            failure: *loaded.get(b"tapline_failure").unwrap(),
            allocate: *loaded.get(b"tapline_allocate").unwrap(),
            release: *loaded.get(b"tapline_release").unwrap(),
            _loaded: loaded,
        }
    }
}

/// Compiles the kernels, unless a test before has compiled the same sources.
fn build() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut digest = Sha256::new();
    digest.update(compiler.as_encoded_bytes());
    for source in sources(&folder).into_iter().chain(sources(&folder.join("host"))) {
        digest.update(source.as_os_str().as_encoded_bytes());
        digest.update(fs::read(&source).unwrap());
    }
    let digest = digest.finalize();
    let name = u64::from_be_bytes(*digest.first_chunk().unwrap());
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (library, unfinished) =
        (place.join(format!("kernels-{name:016x}.so")), place.join(format!("kernels-{name:016x}.part")));
    // Each test may be a process of its own; the others wait for the one that compiles.
    let lock = File::create(place.join("kernels.lock")).unwrap();
    lock.lock().unwrap();
    if !library.exists() {
        let output = Command::new(&compiler)
            .args(["-std=c++17", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"])
            // Numbers are read as packs of others, as on a device; coroutines are left by longjmp.
            .args(["-fno-strict-aliasing", "-U_FORTIFY_SOURCE"])
            .arg(folder.join("host/launch.cpp"))
            .arg("-o")
            .arg(&unfinished)
            .output();
        let compiler = compiler.display();
        let output = output.unwrap_or_else(|error| {
            panic!("the CUDA kernels are tested with a C++17 compiler, and {compiler} cannot be run ({error}): install g++ or \
                    clang, or name one in CXX")
        });
        assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
        fs::rename(&unfinished, &library).unwrap();
    }
    library
}

/// The files of a folder, in order.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file() && path.extension().is_some_and(|ending| ending != "md" && ending != "tsv"));
    files.sort();
    assert!(!files.is_empty(), "no sources in {}", folder.display());
    files
}
