//! Products of bfloat16 tiles with AMX: 32 rows and 32 outputs at a time, in four tiles of sums.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, __get_cpuid_max};
use std::sync::OnceLock;

use super::super::number::Bf16;
use super::{PANEL, Panels, Rows, Target, wide};

/// Rows of a tile, and outputs of a tile of sums.
const TILE: usize = 16;
/// Inputs of a tile: 64 bytes.
const INPUTS: usize = 32;

/// Whether this processor has AMX for bfloat16 and the system lets this process use its registers.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let (most, _) = __get_cpuid_max(0);
        if most < 7 || !wide::is_available() {
            return false;
        }
        // CPUID leaf 7: EDX bit 22 is AMX-BF16, bit 24 AMX-TILE (Intel SDM, volume 2, CPUID).
        let features = __cpuid_count(7, 0).edx;
        features & (1 << 22) != 0 && features & (1 << 24) != 0 && ask_for_tiles()
    })
}

/// Linux lends the tile registers only to processes that have asked (Documentation/arch/x86/xstate.rst).
#[cfg(target_os = "linux")]
fn ask_for_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    #[expect(unsafe_code, reason = "a system call without a wrapper")]
    // SAFETY: the call takes two numbers, touches no memory, and changes only what this process may use.
    let refused = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
    refused == 0
}

#[cfg(not(target_os = "linux"))]
fn ask_for_tiles() -> bool {
    false
}

/// See [`super::multiply`].
///
/// # Panics
/// On a machine without AMX.
pub(super) fn multiply(a: Rows<'_, Bf16>, b: Panels<'_, Bf16>, bias: &[f32], target: Target<'_, Bf16>) {
    assert!(is_available(), "this machine has no AMX");
    #[expect(unsafe_code, reason = "instructions that not every machine has")]
    // SAFETY: looked for above.
    unsafe {
        by_panels(a, b, bias, target);
    }
}

/// Sizes of the eight tile registers, as LDTILECFG reads them: tiles 0 to 3 are sums, 4 and 5 rows, 6 and 7 weights.
#[repr(C, align(64))]
struct TileSizes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl TileSizes {
    /// For tiles of `rows` rows; tiles of weights have 16 always.
    const fn of_rows(rows: u8) -> Self {
        let mut sizes = Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut tile = 0;
        while tile < 8 {
            sizes.row_bytes[tile] = 64;
            sizes.rows[tile] = if tile < 6 { rows } else { 16 };
            tile += 1;
        }
        sizes
    }
}

/// Sums of 32 rows and 32 outputs, on their way to where they go.
#[repr(C, align(64))]
struct Sums([[f32; PANEL]; 2 * TILE]);

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn by_panels(a: Rows<'_, Bf16>, b: Panels<'_, Bf16>, bias: &[f32], mut target: Target<'_, Bf16>) {
    let steps = b.inner.div_ceil(INPUTS);
    let length = super::panel_length::<Bf16>(b.inner);
    let mut sums = Sums([[0.0; PANEL]; 2 * TILE]);
    let whole = a.count / TILE * TILE;
    // All whole tiles first, then what is left of the rows: the sizes of the tiles are set twice at most.
    for (rows, first, last) in [(TILE, 0, whole), (a.count - whole, whole, a.count)] {
        if first == last {
            continue;
        }
        #[expect(clippy::cast_possible_truncation, reason = "16 at most")]
        let sizes = TileSizes::of_rows(rows as u8);
        #[expect(unsafe_code, reason = "the tile registers have no safe form")]
        // SAFETY: the sizes are a whole configuration of 64 bytes. No other code of this thread uses the tile registers.
        unsafe {
            asm!("ldtilecfg [{sizes}]", sizes = in(reg) &raw const sizes, options(nostack, readonly));
        }
        for (index, lines) in b.numbers.chunks_exact(length).enumerate() {
            let column = index * PANEL;
            let columns = wide::Columns::new(bias, column, b.out);
            let mut row = first;
            while row < last {
                let count = (last - row).min(2 * rows);
                #[expect(unsafe_code, reason = "the tile registers have no safe form")]
                // SAFETY: `super::multiply` has looked that each row has `steps` times 32 numbers, `stride` apart, and that
                // each panel has as many lines; the sums are 32 rows of 32. The sizes of the tiles were set above.
                unsafe {
                    let values = a.values.as_ptr().add(row * a.stride);
                    let second = values.add(if count > rows { rows * a.stride } else { 0 });
                    block(values, second, a.stride, lines.as_ptr(), steps, &mut sums);
                }
                columns.finish(&sums.0[..count], row, &mut target);
                row += count;
            }
        }
    }
    #[expect(unsafe_code, reason = "the tile registers have no safe form")]
    // SAFETY: gives the tile registers back; nothing in them is needed any more.
    unsafe {
        asm!("tilerelease", options(nostack, nomem));
    }
}

/// Two tiles of rows times one panel. With fewer than 17 rows left the second is the first again, and its sums are nobody's.
#[expect(unsafe_code, reason = "the tile registers have no safe form")]
#[inline(always)]
unsafe fn block(
    first: *const Bf16,
    second: *const Bf16,
    stride: usize,
    lines: *const Bf16,
    steps: usize,
    sums: &mut Sums,
) {
    let sums = sums.0.as_mut_ptr();
    // SAFETY: the caller keeps rows, lines and sums as long as the tiles' sizes say; only tile registers and the sums change.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            "tileloadd tmm6, [{lines} + {line}]",
            "tileloadd tmm4, [{first} + {stride}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{lines} + {line} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{second} + {stride}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {first}, 64",
            "add {second}, 64",
            "add {lines}, 2048",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{sums} + {line}], tmm0",
            "tilestored [{sums} + {line} + 64], tmm1",
            "tilestored [{below} + {line}], tmm2",
            "tilestored [{below} + {line} + 64], tmm3",
            first = inout(reg) first => _,
            second = inout(reg) second => _,
            lines = inout(reg) lines => _,
            steps = inout(reg) steps => _,
            stride = in(reg) stride * size_of::<Bf16>(),
            line = in(reg) 128usize,
            sums = in(reg) sums,
            below = in(reg) sums.add(TILE),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
