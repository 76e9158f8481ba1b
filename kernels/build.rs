//! Compiles the CUDA kernels of this folder with nvcc when the feature `cuda` is on, and does nothing otherwise.
//!
//! For each module and each architecture of `TAPLINE_CUDA_ARCHITECTURES` it makes machine code, and PTX for the lowest, any
//! warning being an error. `OUT_DIR` then holds `cuda_images.rs`, which embeds them, and `cuda_registers.tsv`, which
//! `kernels/registers.sh` compares with `kernels/registers.tsv`.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::thread;

/// The files of this folder that are compiled.
const MODULES: [&str; 13] = [
    "attention",
    "bias",
    "cache",
    "channel_attention",
    "depthwise",
    "embed",
    "image_tokens",
    "layer_norm",
    "location",
    "patches",
    "reorder",
    "resize",
    "window_attention",
];

/// A100, RTX 30, RTX 40 and H100; the PTX of the lowest serves what comes later.
const ARCHITECTURES: &str = "80,86,89,90";

/// What earlier cards lack: the tensor cores' product with bf16.
const LOWEST_ARCHITECTURE: u32 = 80;

/// Why there are no kernels, for the person who builds.
type Failure = String;

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=kernels/build.rs");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return ExitCode::SUCCESS;
    }
    match compile() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            for line in failure.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn compile() -> Result<(), Failure> {
    watch()?;
    let out = PathBuf::from(variable("OUT_DIR").ok_or("cargo gives no OUT_DIR")?);
    let (nvcc, architectures) = (Nvcc::find()?, architectures()?);
    let lowest = architectures.iter().min().copied().ok_or("no architectures")?;
    let mut jobs = Vec::new();
    for module in MODULES {
        jobs.extend(architectures.iter().map(|&architecture| Job { module, architecture, form: Form::Cubin }));
        jobs.push(Job { module, architecture: lowest, form: Form::Ptx });
    }
    let registers = run_all(&jobs, &nvcc, &out)?;
    write(&out.join("cuda_registers.tsv"), &registers)?;
    write(&out.join("cuda_images.rs"), &table(&jobs, &out))
}

/// Tells cargo what the result depends on.
fn watch() -> Result<(), Failure> {
    for name in ["NVCC", "NVCC_CCBIN", "CUDA_HOME", "PATH", "TAPLINE_CUDA_ARCHITECTURES"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let folder = fs::read_dir("kernels").map_err(|error| format!("kernels: {error}"))?;
    for entry in folder {
        let path = entry.map_err(|error| format!("kernels: {error}"))?.path();
        if path.extension().is_some_and(|ending| ending == "cu" || ending == "cuh") {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    Ok(())
}

/// An environment variable that says something.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn architectures() -> Result<Vec<u32>, Failure> {
    let list = variable("TAPLINE_CUDA_ARCHITECTURES").unwrap_or_else(|| ARCHITECTURES.to_owned());
    let mut architectures = list
        .split(',')
        .map(|number| match number.trim().parse() {
            Ok(architecture) if architecture >= LOWEST_ARCHITECTURE => Ok(architecture),
            _ => Err(format!(
                "TAPLINE_CUDA_ARCHITECTURES is `{list}`: write compute capabilities without the point, from \
                 {LOWEST_ARCHITECTURE} up, such as `{ARCHITECTURES}`"
            )),
        })
        .collect::<Result<Vec<_>, _>>()?;
    architectures.sort_unstable();
    architectures.dedup();
    Ok(architectures)
}

/// NVIDIA's compiler.
struct Nvcc {
    program: PathBuf,
}

impl Nvcc {
    /// From `NVCC`, else `CUDA_HOME/bin`, else `PATH`.
    fn find() -> Result<Self, Failure> {
        let (program, from) = if let Some(nvcc) = variable("NVCC") {
            (PathBuf::from(nvcc), "named by NVCC")
        } else if let Some(home) = variable("CUDA_HOME") {
            (Path::new(&home).join("bin/nvcc"), "in CUDA_HOME")
        } else {
            (PathBuf::from("nvcc"), "found in PATH")
        };
        match Command::new(&program).arg("--version").output() {
            Ok(output) if output.status.success() => Ok(Self { program }),
            Ok(output) => Err(format!("`{} --version` ends with {}", program.display(), output.status)),
            Err(error) => Err(format!(
                "the feature `cuda` needs nvcc, and `{}` ({from}) cannot be run: {error}\n\
                 install the CUDA toolkit 13.0, or the Python packages of .ci/cuda-requirements.txt and set CUDA_HOME to their \
                 nvidia/cu13 folder; without the feature nothing of this is needed",
                program.display()
            )),
        }
    }

    /// Compiles, and returns what ptxas says about each kernel.
    fn run(&self, job: Job, out: &Path) -> Result<String, Failure> {
        let (option, target) = match job.form {
            Form::Cubin => ("-cubin", "sm"),
            Form::Ptx => ("-ptx", "compute"),
        };
        let mut command = Command::new(&self.program);
        command.args(["-std=c++17", option, "-Werror", "all-warnings"]);
        command.arg(format!("-arch={target}_{}", job.architecture));
        if job.form == Form::Cubin {
            command.args(["-Xptxas", "-v,-warn-spills,-Werror"]);
        }
        command.arg("-o").arg(job.file(out)).arg(format!("kernels/{}.cu", job.module));
        let output = command.output().map_err(|error| format!("{}: {error}", self.program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(said) } else { Err(format!("{command:?} ends with {}\n{said}", output.status)) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Cubin,
    Ptx,
}

/// One module in one form for one architecture.
#[derive(Debug, Clone, Copy)]
struct Job {
    module: &'static str,
    architecture: u32,
    form: Form,
}

impl Job {
    fn file(self, out: &Path) -> PathBuf {
        let ending = if self.form == Form::Cubin { "cubin" } else { "ptx" };
        out.join(format!("{}.{}.{ending}", self.module, self.architecture))
    }
}

/// Runs as many jobs at a time as cargo allows; the table of registers.
fn run_all(jobs: &[Job], nvcc: &Nvcc, out: &Path) -> Result<String, Failure> {
    let threads = variable("NUM_JOBS").and_then(|jobs| jobs.parse().ok()).map_or(1, NonZero::<usize>::get);
    let (waiting, done) = (Mutex::new(jobs.iter()), Mutex::new(Ok(Vec::new())));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // A lock that a thread died with ends the others too.
                while let Some(&job) = waiting.lock().ok().and_then(|mut waiting| waiting.next()) {
                    let said = nvcc.run(job, out);
                    let Ok(mut done) = done.lock() else { return };
                    match (&mut *done, said) {
                        (Ok(rows), Ok(said)) => rows.extend(registers(&said, job.architecture)),
                        (Ok(_), Err(failure)) => *done = Err(failure),
                        (Err(_), _) => return,
                    }
                }
            });
        }
    });
    let mut rows = done.into_inner().map_err(|_| "a thread that ran nvcc has died")??;
    rows.sort();
    Ok(format!("kernel\tarchitecture\tregisters\tspilled bytes\tshared bytes\n{}", rows.concat()))
}

/// A line for each kernel that ptxas reports, as `cuda_registers.tsv` has them.
fn registers(said: &str, architecture: u32) -> Vec<String> {
    let before = |line: &str, unit: &str| -> u32 {
        let words = line.split(unit).next().unwrap_or_default().split_whitespace();
        if line.contains(unit) { words.last().and_then(|word| word.parse().ok()).unwrap_or(0) } else { 0 }
    };
    let mut rows = Vec::new();
    let (mut kernel, mut spilled) = (String::new(), 0);
    for line in said.lines() {
        if let Some((_, name)) = line.split_once("Function properties for ") {
            name.trim().clone_into(&mut kernel);
        } else if line.contains("bytes spill stores") {
            spilled = before(line, " bytes spill stores") + before(line, " bytes spill loads");
        } else if line.contains(" registers") {
            let (registers, shared) = (before(line, " registers"), before(line, " bytes smem"));
            rows.push(format!("{kernel}\t{architecture}\t{registers}\t{spilled}\t{shared}\n"));
        }
    }
    rows
}

/// The source that embeds the results.
fn table(jobs: &[Job], out: &Path) -> String {
    let (mut cubins, mut ptx) = (String::new(), String::new());
    for &job in jobs {
        let (list, include) = match job.form {
            Form::Cubin => (&mut cubins, "include_bytes!"),
            Form::Ptx => (&mut ptx, "include_str!"),
        };
        let file = job.file(out);
        // Writing to a string does not fail.
        let _ = writeln!(
            list,
            "    ({:?}, {}, {include}({:?})),",
            job.module,
            job.architecture,
            file.display().to_string()
        );
    }
    format!(
        "/// Machine code: module, architecture, cubin.\n\
         pub(crate) static CUBINS: &[(&str, u32, &[u8])] = &[\n{cubins}];\n\
         /// For later architectures: module, architecture, PTX.\n\
         pub(crate) static PTX: &[(&str, u32, &str)] = &[\n{ptx}];\n"
    )
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
