"""Measure a checkpoint folder on held-out screens, with transformers' own Florence-2 class.

    python evaluate.py ../pocket --trained pocket.pt --screens 300

The weights are the folder's (half precision, computed in float32), the tokenizer is the folder's, the screens are
those of the domain stored in --trained, at seeds that neither the training nor its progress figures touch.
"""
import argparse
import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import Florence2Config, Florence2ForConditionalGeneration

import batches
import losses
import screens
import vocabulary as V

FIRST_SEED = 100_000


def native_name(name):
    """A tensor's name in transformers' class; the table of Florence-2's two naming schemes."""
    if name.startswith("language_model.model."):
        return "model." + name.replace("language_model.model.", "language_model.")
    if name.startswith("vision_tower.convs."):
        return "model." + name.replace(".proj.", ".conv.")
    if name.startswith("vision_tower.blocks."):
        for old, new in ((".window_attn.norm.", ".norm1."), (".channel_attn.norm.", ".norm1."), (".ffn.norm.", ".norm2."),
                         (".fn.dw.", "."), (".fn.net.", "."), (".fn.", ".")):
            name = name.replace(old, new)
        return "model." + name
    if name == "image_projection":
        return "model.multi_modal_projector.image_projection.weight"
    return "model.multi_modal_projector." + name.replace("image_pos_embed", "image_position_embed")


def load(folder):
    """transformers' model with the folder's weights; every tensor must find its place."""
    given = json.loads((folder / "config.json").read_text())
    text, vision = dict(given["text_config"], model_type="bart"), dict(given["vision_config"])
    vision |= dict(model_type="florence_vision", embed_dim=vision.pop("dim_embed"),
                   max_position_embeddings=vision.pop("image_pos_embed")["max_pos_embeddings"],
                   max_temporal_embeddings=vision.pop("visual_temporal_embedding")["max_temporal_embeddings"])
    for key in ("enable_checkpoint", "image_feature_source"):
        vision.pop(key)
    for key in ("max_length", "do_sample", "length_penalty", "num_beams", "no_repeat_ngram_size", "early_stopping"):
        text.pop(key)
    text["vocab_size"] += 1  # the class wants an <image> token
    config = Florence2Config(vision_config=vision, text_config=text, image_token_id=V.VOCAB, tie_word_embeddings=True)
    model = Florence2ForConditionalGeneration(config).float().eval()
    state = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
    assert not state.pop("language_model.final_logits_bias").any()
    state = {native_name(name): value for name, value in state.items()}
    projection = "model.multi_modal_projector.image_projection.weight"
    state[projection] = state[projection].T
    words = state["model.language_model.shared.weight"]
    words = torch.cat([words, torch.zeros(1, words.shape[1])])
    for name in ("model.language_model.shared", "model.language_model.encoder.embed_tokens",
                 "model.language_model.decoder.embed_tokens", "lm_head"):
        state[f"{name}.weight"] = words
    model.load_state_dict(state)
    return model


def features(model, pictures):
    out = model.model.get_image_features(batches.normalise(pictures))
    out = getattr(out, "pooler_output", out)
    return torch.stack(list(out)) if isinstance(out, (list, tuple)) else out


@torch.no_grad()
def answer(model, seen, lines):
    """(bins [n, 4] by greedy choice among location tokens, whether free greedy choice would have said the same)."""
    length = max(map(len, lines))
    text = torch.tensor([line + [V.PAD] * (length - len(line)) for line in lines])
    seen = seen.repeat_interleave(len(lines) // len(seen), 0)
    embedded = torch.cat([seen, model.model.get_input_embeddings()(text)], 1)
    mask = torch.cat([torch.ones(seen.shape[:2], dtype=torch.long), (text != V.PAD).long()], 1)
    language, ids = model.model.language_model, torch.tensor([V.START, V.BOS]).expand(len(lines), 2)
    memory = language.encoder(inputs_embeds=embedded, attention_mask=mask).last_hidden_state
    free = torch.ones(len(lines), dtype=torch.bool)
    for step in range(5):
        states = language.decoder(input_ids=ids, encoder_hidden_states=memory, encoder_attention_mask=mask, use_cache=False)
        logits = model.lm_head(states.last_hidden_state[:, -1])[:, :V.VOCAB]
        if step == 4:
            free &= logits.argmax(-1) == V.EOS
            break
        best = V.LOCATION + logits[:, V.LOCATION:].argmax(-1)
        free &= logits.argmax(-1) == best
        ids = torch.cat([ids, best[:, None]], 1)
    return ids[:, 2:] - V.LOCATION, free


def wilson(hits, count, z=1.96):
    share, grown = hits / count, 1 + z * z / count
    middle, half = share + z * z / 2 / count, z * math.sqrt(share * (1 - share) / count + z * z / 4 / count**2)
    return (middle - half) / grown, (middle + half) / grown


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trained", type=Path, required=True)
    parser.add_argument("--screens", type=int, default=300)
    parser.add_argument("--per-screen", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    args = parser.parse_args()
    torch.set_num_threads(1)
    saved = torch.load(args.trained, weights_only=False)
    domain, layout = saved["domain"], saved["layout"]
    model, tokenizer = load(args.folder), Tokenizer.from_file(str(args.folder / "tokenizer.json"))

    kinds, hits, free, spurious, overlap = [], [], [], [], []
    for first in range(0, args.screens, 10):
        batch = batches.make(FIRST_SEED + first, 10, args.per_screen, domain, layout.image, layout.grid)
        with torch.no_grad():
            seen = features(model, batch["pictures"])
        asked = [c for i in range(10) for c, *_ in batches.commands(
            FIRST_SEED + first + i, screens.screen(FIRST_SEED + first + i, domain)[1], args.per_screen, domain)]
        lines = [tokenizer.encode(command).ids for command in asked]
        assert lines == [V.encode(command) for command in asked], "tokenizer.json and vocabulary.py differ"
        found, said = answer(model, seen, lines)
        kinds += batch["kinds"]
        hits += losses.hits(found, batch["answer"], batch["absent"]).tolist()
        spurious += (found == V.ABSTAIN).all(-1).tolist()
        overlap += iou(found, batch["answer"]).tolist()
        free += said.tolist()

    figures = {"screens": args.screens, "commands": len(hits), "first_seed": FIRST_SEED, "kinds": {}}
    groups = {"all": set(kinds), "present": set(kinds) - {"absent"}, **{k: {k} for k in sorted(set(kinds))}}
    for name, members in groups.items():
        of = [i for i, kind in enumerate(kinds) if kind in members]
        right = sum(hits[i] for i in of)
        low, high = wilson(right, len(of))
        figures["kinds"][name] = {"commands": len(of), "right": right, "share": round(right / len(of), 4),
                                  "wilson95": [round(low, 4), round(high, 4)]}
        print(f"{name:16} {right:5} of {len(of):5}  {100 * right / len(of):5.1f} %  [{100 * low:.1f}, {100 * high:.1f}]")
    present = [i for i, kind in enumerate(kinds) if kind != "absent"]
    figures["abstained_though_present"] = round(sum(spurious[i] for i in present) / len(present), 4)
    figures["free_greedy_agrees"] = round(sum(free) / len(free), 4)
    good = [overlap[i] for i in present if hits[i]]
    figures["mean_iou_of_hits"] = round(sum(good) / max(1, len(good)), 4)
    print({k: v for k, v in figures.items() if k != "kinds"})
    if args.out:
        args.out.write_text(json.dumps(figures, indent=1) + "\n")


def iou(a, b):
    a, b = a.float(), b.float()
    side = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0)
    area = lambda x: (x[:, 2:] - x[:, :2]).clamp(min=0).prod(-1)
    return side.prod(-1) / (area(a) + area(b) - side.prod(-1)).clamp(min=1)


if __name__ == "__main__":
    main()
