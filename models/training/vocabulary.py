"""The words pocket knows and their token ids.

The tokenizer is one id per word: a locator for a hundred labels has no use for word pieces, and a word that is one
token is one vector that the dense stage of the training can tie to the picture of that word.

Ids: 0..3 specials, then the words, then <loc_0> .. <loc_999>.
"""

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
BOS, PAD, EOS, UNK = range(4)
START = EOS  # BART starts its decoder with </s>

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "gray")
SHAPES = ("circle", "square", "triangle", "diamond", "star", "heart", "ring", "moon")
ICONS = ("home", "search", "menu", "plus", "check", "close", "mail", "user", "lock", "bell", "pause", "arrow")
ROLES = ("button", "row", "tab", "chip", "icon", "shape", "title")

# The first words are learned first, so they look unlike each other.
LABELS = (
    "save cancel settings home search delete play share help login next back "
    "send edit music profile photos download camera open update menu filter inbox "
    "account map done copy weather wallet stop orders language archive privacy video "
    "add alarm books bluetooth calendar cart chat close contacts continue display email events "
    "favorites files folder games gallery history jobs location logout messages network news notes "
    "offers password pause pay phone print record refresh remove reply restart security "
    "shop skip sound storage submit support tasks theme timer travel upload volume"
).split()

FILLERS = "tap press click on the open go to select choose find touch show hit".split()

WORDS = tuple(dict.fromkeys([*FILLERS, *ROLES, *COLOURS, *SHAPES, *ICONS, *LABELS]))
NAMES = tuple(dict.fromkeys([*SHAPES, *ICONS, *LABELS]))  # what can be written or drawn on one element

WORD_ID = {word: len(SPECIALS) + i for i, word in enumerate(WORDS)}
LOCATION = len(SPECIALS) + len(WORDS)  # id of <loc_0>
BINS = 1000
VOCAB = LOCATION + BINS
ABSTAIN = 499  # four times this bin says "not on this screen"


def encode(command):
    """Token ids of a lower-case command of words, with <s> and </s>; the tokenizer.json does the same."""
    return [BOS, *(WORD_ID.get(word, UNK) for word in command.split()), EOS]
