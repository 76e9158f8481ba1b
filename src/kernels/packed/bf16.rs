//! Which instructions multiply bfloat16 numbers on this machine.

use super::super::number::Bf16;
use super::{Panels, Rows, Target, tiles};

/// See [`super::multiply`]. AMX where it is, else AVX-512's products of pairs, else numbers widened to f32.
pub(in super::super) fn multiply(a: Rows<'_, Bf16>, b: Panels<'_, Bf16>, bias: &[f32], target: Target<'_, Bf16>) {
    #[cfg(target_arch = "x86_64")]
    {
        if super::amx::is_available() {
            return super::amx::multiply(a, b, bias, target);
        }
        if super::wide::is_available() {
            return super::avx512::multiply(a, b, bias, target);
        }
    }
    tiles::multiply(a, b, bias, target);
}

/// The instructions that products of bfloat16 numbers are computed with on this machine, for people.
#[must_use]
pub fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if super::amx::is_available() {
            return "AMX";
        }
        if super::wide::is_available() {
            return "AVX-512 BF16";
        }
    }
    "widened to f32"
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;

    #[test]
    fn every_set_of_instructions_equals_the_plain_sum() {
        check::<Bf16>(tiles::multiply, 5e-3);
        #[cfg(target_arch = "x86_64")]
        {
            for (name, available, multiply) in [
                (
                    "AMX",
                    super::super::amx::is_available(),
                    super::super::amx::multiply as fn(Rows<'_, _>, Panels<'_, _>, &[f32], Target<'_, _>),
                ),
                ("AVX-512 BF16", super::super::wide::is_available(), super::super::avx512::multiply),
            ] {
                if available {
                    check::<Bf16>(multiply, 5e-3);
                } else {
                    eprintln!("SKIPPED: this machine has no {name}");
                }
            }
        }
    }
}
