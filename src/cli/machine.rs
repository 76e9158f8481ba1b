//! What the operating system says about this machine, for `tapline doctor`. It judges nothing, and what cannot be told is
//! `None`.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A GPU as its driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gpu {
    /// The driver's words.
    pub description: String,
}

/// The processor's name.
pub(super) fn processor() -> Option<String> {
    let text = fs_err::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Vector instructions that matter here, and whether this processor has them.
pub(super) fn instructions() -> Vec<(&'static str, bool)> {
    #[cfg(target_arch = "x86_64")]
    return vec![
        ("AVX2", std::arch::is_x86_feature_detected!("avx2")),
        ("FMA", std::arch::is_x86_feature_detected!("fma")),
        ("AVX-512", std::arch::is_x86_feature_detected!("avx512f")),
        ("AVX-512 BF16", std::arch::is_x86_feature_detected!("avx512bf16")),
        ("AMX", crate::kernels::bf16_instructions() == "AMX"),
    ];
    #[cfg(target_arch = "aarch64")]
    return vec![("NEON", std::arch::is_aarch64_feature_detected!("neon"))];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return Vec::new();
}

/// Processors of the whole machine, whatever is lent to this process.
pub(super) fn processors() -> Option<usize> {
    let text = fs_err::read_to_string("/proc/cpuinfo").ok()?;
    Some(text.lines().filter(|line| line.starts_with("processor")).count()).filter(|&count| count > 0)
}

/// Bytes of memory that can be had, by the machine and by the cgroup of this container.
pub(super) fn free_memory() -> Option<u64> {
    let text = fs_err::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let machine = line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024;
    Some(machine.min(lent_memory().unwrap_or(u64::MAX)))
}

/// What the cgroup, version 2 or 1, has left. Without a limit there is none.
fn lent_memory() -> Option<u64> {
    let number = |path: &str| fs_err::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let (limit, used) = match number("/sys/fs/cgroup/memory.max") {
        Some(limit) => (limit, number("/sys/fs/cgroup/memory.current")?),
        None => (
            number("/sys/fs/cgroup/memory/memory.limit_in_bytes")?,
            number("/sys/fs/cgroup/memory/memory.usage_in_bytes")?,
        ),
    };
    Some(limit.saturating_sub(used))
}

/// The NVIDIA kernel driver's version.
pub(super) fn nvidia_driver() -> Option<String> {
    let text = fs_err::read_to_string("/proc/driver/nvidia/version").ok()?;
    let line = text.lines().next()?;
    let version =
        line.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
    Some(version.unwrap_or(line).to_owned())
}

/// NVIDIA GPUs: by `nvidia-smi` where it is installed and answers, else by what the driver lists.
pub(super) fn gpus() -> Vec<Gpu> {
    let query = ["--query-gpu=name,compute_cap,memory.total,memory.free", "--format=csv,noheader"];
    let asked =
        find("nvidia-smi").and_then(|program| answer(Command::new(program).args(query), Duration::from_secs(5)));
    let lines = |text: String| -> Vec<Gpu> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(|line| Gpu { description: line.to_owned() }).collect()
    };
    asked.map(lines).filter(|gpus| !gpus.is_empty()).unwrap_or_else(|| listed(Path::new("/proc/driver/nvidia/gpus")))
}

fn listed(folder: &Path) -> Vec<Gpu> {
    let Ok(entries) = fs_err::read_dir(folder) else { return Vec::new() };
    let description = |folder: PathBuf| {
        let text = fs_err::read_to_string(folder.join("information")).ok()?;
        let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
        Some(Gpu { description: model.trim().to_owned() })
    };
    entries.flatten().filter_map(|entry| description(entry.path())).collect()
}

/// A program in `PATH`.
fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// What a program prints, unless it fails or hangs, as `nvidia-smi` does on a broken driver.
fn answer(command: &mut Command, patience: Duration) -> Option<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let deadline = Instant::now() + patience;
    loop {
        match child.try_wait().ok()? {
            Some(status) if status.success() => break,
            Some(_) => return None,
            None if Instant::now() >= deadline => {
                let _ended = child.kill();
                return None;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    let mut text = String::new();
    child.stdout.take()?.read_to_string(&mut text).ok()?;
    Some(text)
}

/// Whether a file can be made in a folder, or where the folder would be made.
pub(super) fn is_writable(folder: &Path) -> bool {
    let Some(folder) = folder.ancestors().find(|folder| folder.is_dir()) else { return false };
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_not_waited_for() {
        let (Some(sleep), Some(echo)) = (find("sleep"), find("echo")) else { return };
        let before = Instant::now();
        assert_eq!(answer(Command::new(sleep).arg("60"), Duration::from_millis(50)), None);
        assert!(before.elapsed() < Duration::from_secs(30));
        assert_eq!(answer(Command::new(echo).arg("hello"), Duration::from_secs(30)).as_deref(), Some("hello\n"));
        assert_eq!(find("no-such-program-anywhere"), None);
    }

    #[test]
    fn gpus_are_listed_by_their_driver() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::create_dir(folder.path().join("0000:01:00.0")).unwrap();
        let file = folder.path().join("0000:01:00.0/information");
        fs_err::write(file, "Model: \t\t NVIDIA H200\nIRQ: 1\n").unwrap();
        assert_eq!(listed(folder.path()), [Gpu { description: "NVIDIA H200".into() }]);
        assert_eq!(listed(Path::new("/no/such/folder")), []);
    }
}
