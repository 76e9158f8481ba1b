//! Which compiled form of a CUDA module a card runs. Tables and numbers only, so that it is tested without a card.

/// A module's name, the architecture it was compiled for (80 for a card of compute capability 8.0), and the compiled form.
pub(super) type Compiled<'a, Form> = (&'a str, u32, Form);

/// What is handed to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Image<'a> {
    /// Machine code.
    Cubin(&'a [u8]),
    /// Code that the driver compiles for the card at hand.
    Ptx(&'a str),
}

/// The best form of a module for a card. Machine code runs on cards of its own major number and of its minor number or a
/// later one; the latest that does is taken. PTX runs on every later card, and is taken where no machine code fits.
pub(super) fn choose<'a>(
    module: &str,
    card: u32,
    cubins: &[Compiled<'a, &'a [u8]>],
    ptx: &[Compiled<'a, &'a str>],
) -> Option<Image<'a>> {
    let same_major = |architecture: u32| architecture / 10 == card / 10;
    let cubin = cubins
        .iter()
        .filter(|(name, architecture, _)| *name == module && same_major(*architecture) && *architecture <= card);
    let ptx = ptx.iter().filter(|(name, architecture, _)| *name == module && *architecture <= card);
    let cubin = cubin.max_by_key(|(_, architecture, _)| *architecture);
    let ptx = ptx.max_by_key(|(_, architecture, _)| *architecture);
    cubin.map(|(_, _, code)| Image::Cubin(code)).or(ptx.map(|(_, _, text)| Image::Ptx(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUBINS: &[Compiled<'static, &[u8]>] =
        &[("bias", 80, b"80"), ("bias", 86, b"86"), ("bias", 90, b"90"), ("embed", 89, b"e89")];
    const PTX: &[Compiled<'static, &str>] = &[("bias", 80, "ptx 80"), ("bias", 90, "ptx 90")];

    fn chosen(module: &str, card: u32) -> Option<Image<'static>> {
        choose(module, card, CUBINS, PTX)
    }

    #[test]
    fn machine_code_of_the_very_card_comes_first() {
        for (card, code) in [(80, b"80"), (86, b"86"), (90, b"90")] {
            assert_eq!(chosen("bias", card), Some(Image::Cubin(code)), "{card}");
        }
    }

    #[test]
    fn machine_code_runs_on_later_cards_of_the_same_major_number_only() {
        assert_eq!(chosen("bias", 89), Some(Image::Cubin(b"86")));
        assert_eq!(chosen("bias", 100), Some(Image::Ptx("ptx 90")));
        assert_eq!(chosen("bias", 121), Some(Image::Ptx("ptx 90")));
        assert_eq!(chosen("embed", 89), Some(Image::Cubin(b"e89")));
        assert_eq!(chosen("embed", 86), None, "an earlier card of the same major number");
        assert_eq!(chosen("embed", 90), None, "a later major number, and no PTX");
    }

    #[test]
    fn earlier_cards_and_unknown_modules_have_nothing() {
        assert_eq!(chosen("bias", 75), None);
        assert_eq!(chosen("absent", 90), None);
        assert_eq!(choose("bias", 90, &[], &[]), None);
    }

    #[test]
    fn without_machine_code_the_latest_ptx_that_runs_is_taken() {
        for (card, text) in [(80, "ptx 80"), (89, "ptx 80"), (90, "ptx 90"), (120, "ptx 90")] {
            assert_eq!(choose("bias", card, &[], PTX), Some(Image::Ptx(text)), "{card}");
        }
    }
}
