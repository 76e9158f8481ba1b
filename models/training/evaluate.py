"""Measure a checkpoint folder on ScreenSpot-shaped folders, with transformers' own Florence-2 class.

    python evaluate.py ../pocket procedural=build/held-out/procedural evaluation=../pocket/evaluation --out ../pocket/figures.json

The weights are the folder's (half precision, computed in float32), and so is the tokenizer. Right means that the middle
of the answered box lies in the true box, edges included, or that it abstained where the target is absent; abstaining on
a target that is there is wrong. Intervals are Wilson 95 %.
"""
import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import Florence2Config, Florence2ForConditionalGeneration

import batches
import screenspot
import vocabulary as V


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


def iou(a, b):
    """Of two boxes x1, y1, x2, y2."""
    wide, tall = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(0, wide) * max(0, tall)
    area = lambda box: max(0, box[2] - box[0]) * max(0, box[3] - box[1])
    return shared / max(1e-9, area(a) + area(b) - shared)


def judge(item, bins, size):
    """An item's verdict: right, abstained, and the overlap of a hit."""
    scale = (size[0] / V.BINS, size[1] / V.BINS) * 2
    found = [v * s for v, s in zip(bins, scale)]
    abstained = all(v == V.ABSTAIN for v in bins)
    verdict = {"kind": item["kind"], "kit": item["kit"], "type": item["data_type"], "abstained": abstained, "overlap": None,
               "found": [round(v, 1) for v in found]}
    if item["bbox"] is None:
        return verdict | {"right": abstained}
    x, y, width, height = item["bbox"]
    middle = (found[0] + found[2]) / 2, (found[1] + found[3]) / 2
    right = not abstained and x <= middle[0] <= x + width and y <= middle[1] <= y + height
    return verdict | {"right": right, "overlap": iou(found, (x, y, x + width, y + height)) if right else None}


def run(model, tokenizer, items, side):
    """Verdicts for items in their order, and the share whose free greedy choice was the same."""
    verdicts, same, by_picture = [None] * len(items), [], {}
    for n, item in enumerate(items):
        by_picture.setdefault(item["path"], []).append(n)
    for path, members in by_picture.items():
        image = Image.open(path)
        picture = torch.from_numpy(np.array(batches.squash(image, side)))[None]
        with torch.no_grad():
            seen = features(model, picture)
        lines = [tokenizer.encode(items[n]["instruction"]).ids for n in members]
        assert lines == [V.encode(items[n]["instruction"]) for n in members], "tokenizer.json and vocabulary.py differ"
        found, free = answer(model, seen, lines)
        same += free.tolist()
        for n, bins in zip(members, found.tolist()):
            verdicts[n] = judge(items[n], bins, image.size)
    return verdicts, sum(same) / len(same)


def share(verdicts):
    right = sum(v["right"] for v in verdicts)
    low, high = wilson(right, len(verdicts))
    return {"commands": len(verdicts), "right": right, "share": round(right / len(verdicts), 4),
            "wilson95": [round(low, 4), round(high, 4)]}


def figures(verdicts):
    """Figures of one source."""
    present = [v for v in verdicts if v["kind"] != "absent"]
    groups = {"all": verdicts, "present": present, "absent": [v for v in verdicts if v["kind"] == "absent"]}
    for field in ("kind", "kit", "type"):
        for value in sorted({v[field] for v in present}):
            groups[f"{field}: {value}"] = [v for v in present if v[field] == value]
    hits = [v["overlap"] for v in present if v["right"]]
    return {"groups": {name: share(members) for name, members in groups.items() if members},
            "false_abstentions": round(sum(v["abstained"] for v in present) / len(present), 4),
            "hits_with_iou_of_half": round(sum(o >= 0.5 for o in hits) / max(1, len(hits)), 4),
            "mean_iou_of_hits": round(sum(hits) / max(1, len(hits)), 4)}


def table(out):
    """The figures of all sources as rows of a Markdown table."""
    def percent(part):
        low, high = part["wilson95"]
        return f"{100 * part['share']:.1f} % of {part['commands']:,} ({100 * low:.1f} to {100 * high:.1f})"

    names = list(out)
    rows = [["", *names], ["---"] * (len(names) + 1)]
    for group in dict.fromkeys(group for part in out.values() for group in part["groups"]):
        cells = [part["groups"].get(group) for part in out.values()]
        rows.append([group, *(percent(cell) if cell else "" for cell in cells)])
    for key in ("false_abstentions", "hits_with_iou_of_half", "free_greedy_agrees"):
        rows.append([key.replace("_", " "), *(f"{100 * part[key]:.1f} %" for part in out.values())])
    rows.append(["mean iou of hits", *(f"{part['mean_iou_of_hits']:.2f}" for part in out.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="+", help="NAME=FOLDER with a screenspot.json")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    parser.add_argument("--verdicts", type=Path, help="a JSON file for every item's verdict")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model, tokenizer = load(args.folder), Tokenizer.from_file(str(args.folder / "tokenizer.json"))
    side = json.loads((args.folder / "preprocessor_config.json").read_text())["size"]["height"]

    out, every = {}, {}
    for name, _, folder in (part.partition("=") for part in args.sets):
        items = screenspot.read(folder)
        verdicts, same = run(model, tokenizer, items, side)
        out[name] = figures(verdicts) | {"free_greedy_agrees": round(same, 4)}
        every[name] = [{"img_filename": i["img_filename"], "instruction": i["instruction"], "bbox": i["bbox"]} | v
                       for i, v in zip(items, verdicts)]
        print(f"== {name}: {len(items)} commands on {len({i['path'] for i in items})} screens")
        for group, part in out[name]["groups"].items():
            low, high = part["wilson95"]
            print(f"{group:24} {part['right']:5} of {part['commands']:5}  {100 * part['share']:5.1f} %"
                  f"  [{100 * low:.1f}, {100 * high:.1f}]")
        print({key: value for key, value in out[name].items() if key != "groups"}, flush=True)
    print(table(out))
    if args.out:
        args.out.write_text(json.dumps(out, indent=1) + "\n")
    if args.verdicts:
        args.verdicts.write_text(json.dumps(every) + "\n")


if __name__ == "__main__":
    main()
