"""What the training asks of the network, beyond the answer itself.

Learning to point from boxes alone stays at chance for tens of thousands of screens: the cross-attention has nothing
to find while cells and words do not resemble each other, and cells get no error worth learning from while nothing
looks at them. So every cell is told what it shows (in terms of the text model's own word vectors) and where its
element lies (in terms of the location tokens), and the decoder's cross-attention is told where to look. Only the
heads here are thrown away afterwards.

Hundreds of words are learned one by one, each from its few pictures; their letters are common to all. So the first
stage is asked which letters a cell shows, and the last how the word that it shows is spelt.
"""
import torch
from torch import nn
from torch.nn import functional as F

import cells as grid_cells
import vocabulary as V


# Ids of what a cell may show, by group: words (with one class for any other word), icons, roles.
GROUP_IDS = [torch.tensor([V.WORD_ID[word] for word in group]) for group in (V.SHOWN, V.ICONS, V.ROLES)]
ABSENT_SIGMA = 7.0  # bins of blur around the abstain bin, at least
WORDS, ROLES = 0, 2  # the group that has the class for any other word, and the easy one


class Heads(nn.Module):
    """The throw-away part: projections from cells to word vectors and to location vectors."""

    def __init__(self, dim, first):
        super().__init__()
        self.letters = nn.Linear(first, len(grid_cells.LETTERS))
        self.spelling = nn.Linear(dim, grid_cells.SPELT * (grid_cells.NONE + 1))
        self.what = nn.ModuleList(nn.Linear(dim, dim) for _ in GROUP_IDS)
        self.nothing = nn.Parameter(torch.zeros(len(GROUP_IDS), dim))
        self.other = nn.Parameter(torch.zeros(1, dim))
        self.bias = nn.Parameter(torch.zeros(len(GROUP_IDS)))
        self.where = nn.Linear(dim, 4 * dim)

    def names(self, cells, words, group):
        """Logits over nothing and the members of a group, for cells [.., dim]."""
        rest = [self.other] if group == WORDS else []
        table = torch.cat([self.nothing[group:group + 1], words[GROUP_IDS[group]], *rest])
        logits = (self.what[group](cells) @ table.T).float()
        return logits + F.pad(self.bias[group:group + 1], (0, len(table) - 1))


def soft_targets(answer, sigma):
    """Gaussians over the bins, so that a near miss costs little. `sigma` is a number, or one for each row."""
    distance = torch.arange(V.BINS) - answer.unsqueeze(-1)
    weight = torch.exp(-0.5 * (distance / sigma) ** 2)
    return weight / weight.sum(-1, keepdim=True)


def place_loss(states, head, words, answer, sigma):
    """Cross-entropy of four projected states [n, 4 * dim] against location tokens."""
    logits = (head(states).view(len(states), 4, -1) @ words[V.LOCATION:].T).float()
    return -(soft_targets(answer, sigma) * logits.log_softmax(-1)).sum(-1).mean()


def look_losses(heads, features, cells, words, sigma, most=12):
    """Dense losses on image features: (what, where)."""
    seen, what = features[:, 1:], 0.0
    for group in range(len(GROUP_IDS)):
        label = cells[:, group]
        logits = heads.names(seen, words, group)
        weight = torch.where(label > 0, 1.0, 0.2)  # most cells show nothing
        each = F.cross_entropy(logits.transpose(1, 2), label, ignore_index=grid_cells.IGNORE, reduction="none")
        part = (each * weight).sum() / weight[label != grid_cells.IGNORE].sum()
        what = what + (part if group == ROLES else 2 * part)  # names are the slowest to come
    image, cell = torch.nonzero(cells[:, 3] >= 0, as_tuple=True)
    some = torch.randperm(len(image))[:most * len(cells)]
    image, cell = image[some], cell[some]
    bins = cells[image, 3:grid_cells.LABELS, cell]
    where = place_loss(seen[image, cell], heads.where, words, bins, sigma)
    return what, where


def letter_losses(heads, first, features, batch):
    """(letters, spelling) losses: of the first stage's cells, and of the words that the last one's show."""
    shown = batch["letters"].permute(0, 2, 3, 1).float()
    logits = heads.letters(first).float()
    # Most cells show few letters or none; the rare ones must count.
    each = F.binary_cross_entropy_with_logits(logits, shown, reduction="none", pos_weight=torch.tensor(4.0))
    letters = each.sum() / shown.sum().clamp(min=1)
    label = batch["cells"][:, grid_cells.LABELS:]
    image, cell = torch.nonzero(label[:, 0] != grid_cells.IGNORE, as_tuple=True)
    logits = heads.spelling(features[:, 1:][image, cell]).float().view(-1, grid_cells.SPELT, grid_cells.NONE + 1)
    return letters, F.cross_entropy(logits.flatten(0, 1), label[image, :, cell].flatten())


def answer_losses(model, features, batch, sigma, jitter=5):
    """(answer, attention) losses of the commands of a batch."""
    text, answer, absent = batch["text"], batch["answer"], batch["absent"]
    shown = answer + torch.randint(-jitter, jitter + 1, answer.shape) * ~absent[:, None]
    begin = torch.tensor([V.START, V.BOS]).expand(len(text), 2)
    ids = torch.cat([begin, V.LOCATION + shown.clamp(0, V.BINS - 1)], 1)
    logits, shares = model.answer(model.read(features, text), ids)

    log = logits.log_softmax(-1)
    # The abstain bin stands out from its neighbours a little, since it must be met exactly.
    stands_out = 1 + 0.3 * (absent[:, None, None] & (torch.arange(V.BINS) == V.ABSTAIN))
    # An edge that is known within some bins has a low peak however sure its element is; a sharp abstain bin would win too often.
    soft = soft_targets(answer, torch.where(absent, max(sigma, ABSENT_SIGMA), sigma)[:, None, None]) * stands_out
    located = -(soft / soft.sum(-1, keepdim=True) * log[:, 1:5, V.LOCATION:]).sum(-1).mean()
    framed = -(log[:, 0, V.BOS] + log[:, 5, V.EOS]).mean()

    # Where to look: first at the words that matter, then at the target's cells, or at </s> if there is no target.
    cells, length = batch["target"].shape[1], shares[0].shape[-1]
    words, look = torch.zeros(2, len(text), length, dtype=torch.bool)
    words[:, 1 + cells:] = (text >= V.FIRST_MEANING) & (text < V.LOCATION)
    look[:, 1:1 + cells] = batch["target"]
    look[:, 1 + cells:] = (text == V.EOS) & absent[:, None]
    attention = 0.0
    for weights, wanted, part in ((shares[0], words, 0.3), (shares[-2], look, 0.5), (shares[-1], look, 1.0)):
        share = (weights.mean(1)[:, 1:5] * wanted[:, None]).sum(-1)
        attention = attention - part * (share + 1e-4).log().mean()
    return located + 0.1 * framed, attention


@torch.no_grad()
def decode(model, features, text):
    """Greedy bins [commands, 4], restricted to location tokens."""
    memory = model.read(features, text)
    ids = torch.tensor([V.START, V.BOS]).expand(len(text), 2)
    for _ in range(4):
        logits, _ = model.answer(memory, ids)
        ids = torch.cat([ids, V.LOCATION + logits[:, -1:, V.LOCATION:].argmax(-1)], 1)
    return ids[:, 2:] - V.LOCATION


def hits(found, answer, absent):
    """Was the middle of the found box inside the true one, or the abstain answer given to an absent target?"""
    abstained = (found == V.ABSTAIN).all(-1)
    x, y = (found[:, 0] + found[:, 2]) / 2, (found[:, 1] + found[:, 3]) / 2
    inside = (x >= answer[:, 0]) & (x <= answer[:, 2]) & (y >= answer[:, 1]) & (y <= answer[:, 3])
    return torch.where(absent, abstained, inside & ~abstained)
