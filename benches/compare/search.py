"""Greedy and beam search in NumPy over a decoder with a cache, by the rules of a checkpoint, as transformers runs them.

`step(ids, parents)` feeds one id to each row, row i going on from the row parents[i] of the step before, and returns
logits (rows, vocabulary).
"""

import numpy as np


def decode(step, rules):
    return greedy(step, rules) if rules.num_beams == 1 else beams(step, rules)


def constrain(scores, ids, rules):
    """In place: no n-gram twice, then the forced first and last ids, as transformers orders them."""
    n = rules.no_repeat_ngram_size
    if n and len(ids) + 1 >= n:
        tail = ids[len(ids) + 1 - n:]
        for i in range(len(ids) - n + 1):
            if ids[i:i + n - 1] == tail:
                scores[ids[i + n - 1]] = -np.inf
    for length, token in ((1, rules.forced_bos_token_id), (rules.max_length - 1, rules.forced_eos_token_id)):
        if len(ids) == length:
            scores[:] = -np.inf
            scores[token] = 0.0
    return scores


def greedy(step, rules):
    ids = [rules.decoder_start_token_id]
    while len(ids) < rules.max_length:
        logits = step(ids[-1:], [0])[0]
        ids.append(int(constrain(logits, ids, rules).argmax()))
        if ids[-1] == rules.eos_token_id:
            break
    return ids


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def best(scores, count):
    """Places of the `count` highest scores of all rows, best first."""
    places = np.argpartition(-scores, count)[:count]
    return places[np.argsort(-scores[places], kind="stable")]


def beams(step, rules):
    """With early stopping: as many finished answers as beams end the search. The score is the mean log-probability."""
    width, end = rules.num_beams, rules.eos_token_id
    # All beams start alike: one row is fed, and the others are its copies that nobody prefers.
    answers, totals, parents, finished = [[rules.decoder_start_token_id]], np.zeros(1, np.float32), [0], []
    while len(finished) < width and len(answers[0]) < rules.max_length:
        scores = log_softmax(step([ids[-1] for ids in answers], parents))
        vocabulary = scores.shape[1]
        for row, ids in enumerate(answers):
            scores[row] = totals[row] + constrain(scores[row], ids, rules)
        flat = scores.reshape(-1)
        going_on = []
        for rank, place in enumerate(best(flat, 2 * width)):
            (row, token), score = divmod(int(place), vocabulary), float(flat[place])
            ids = [*answers[row], token]
            if token == end:
                if rank < width and np.isfinite(score):
                    finished.append((score / (len(ids) - 1), ids))
            elif np.isfinite(score) and len(going_on) < width:
                going_on.append((row, ids, score))
        if not going_on:
            break
        parents, answers = [row for row, _, _ in going_on], [ids for _, ids, _ in going_on]
        totals = np.array([score for _, _, score in going_on], np.float32)
    if len(finished) < width:
        finished += [(float(total) / (len(ids) - 1), ids) for ids, total in zip(answers, totals)]
    return max(finished, key=lambda answer: answer[0])[1]
