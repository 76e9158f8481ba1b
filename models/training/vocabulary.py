"""The words pocket knows and their token ids.

The tokenizer is one id per word: a locator for a few hundred labels has no use for word pieces, and a word that is one
token is one vector that the dense part of the training can tie to the picture of that word. The labels come from
`content.json` and the icons from `icons.json`, which both screen makers read too.

Ids: 0..3 specials, then the words, then <loc_0> .. <loc_999>.
"""
import json
import re
from pathlib import Path

HERE = Path(__file__).parent
CONTENT = json.loads((HERE / "content.json").read_text())  # group -> labels
ICONS = json.loads((HERE / "icons.json").read_text())      # icon -> how it is spoken of, and its name in each icon set

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
BOS, PAD, EOS, UNK = range(4)
START = EOS  # BART starts its decoder with </s>


def split(text):
    """Words of a text, as the tokenizer's normalizer leaves them."""
    return re.findall("[a-z0-9]+", text.lower())


# What says nothing of the target.
FILLERS = """tap press click on the a an open go to select choose find touch hit show please that this says with labeled
named called i want would like into of in at for and text now use""".split()
# What an element is, and how else people call it. The first word of each line is the role.
ROLES = {line.split()[0]: line.split() for line in """
button
link
tab
row item entry line
field box input
checkbox option
radio choice
switch toggle
select dropdown
slider bar
menu
chip label
card tile
icon symbol
""".strip().splitlines()}
# Where it is.
PLACES = """first second third fourth fifth last one two three four five top bottom left right middle center upper lower corner
next beside below above under near""".split()
VERBS = "type enter write fill turn switch off enable disable check uncheck tick set mark".split()

SPOKEN = [word for icon in ICONS.values() for spoken in icon["spoken"] for word in split(spoken)]
SHOWN = tuple(dict.fromkeys(word for group in CONTENT.values() for label in group for word in split(label)))
MEANING = tuple(dict.fromkeys(
    [*(w for words in ROLES.values() for w in words), *PLACES, *VERBS, *SHOWN, *ICONS, *SPOKEN]))
WORDS = tuple(dict.fromkeys([*(w for w in FILLERS if w not in MEANING), *MEANING]))

WORD_ID = {word: len(SPECIALS) + i for i, word in enumerate(WORDS)}
FIRST_MEANING = WORD_ID[MEANING[0]]    # words before it are fillers
LOCATION = len(SPECIALS) + len(WORDS)  # id of <loc_0>
BINS = 1000
VOCAB = LOCATION + BINS
ABSTAIN = 499  # four times this bin says "not on this screen"


def encode(command):
    """Token ids of a command, with <s> and </s>; the tokenizer.json does the same."""
    return [BOS, *(WORD_ID.get(word, UNK) for word in split(command)), EOS]
