#!/usr/bin/env python3
"""Three ONNX graphs of a checkpoint in f32, checked against PyTorch: vision, encode, step. Takes a few minutes.

    python onnx_export.py --checkpoint full-size --prompt-ids 16

Sizes are fixed but for the step's rows and past ids, so that ONNX Runtime knows all it can know:

    vision  pixels (1, 3, side, side)                             -> features (1, image tokens, d_model)
    encode  features, ids (1, prompt)                             -> cross key (1, heads, head size, tokens) and
                                                                     cross value (1, heads, tokens, head size) per layer
    step    id (rows, 1), position (1), the cross keys and values -> logits (rows, vocabulary), and the keys and values
            and own keys and values (rows, heads, past, head size)   with this id's
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from florence2_torch import load

# The last set of operators with Gelu and LayerNormalization of their own and attention still in parts.
OPSET = 20


class Vision(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model.model

    def forward(self, pixels):
        return self.model.get_image_features(pixels).pooler_output


class Encode(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.embed, text = model.get_input_embeddings(), model.model.language_model
        self.encoder, self.layers = text.encoder, text.decoder.layers

    def forward(self, features, ids):
        states = self.encoder(inputs_embeds=torch.cat([features, self.embed(ids)], dim=1)).last_hidden_state
        cross = []
        for layer in self.layers:
            attention = layer.encoder_attn
            keys, values = (heads(projection(states), attention) for projection in (attention.k_proj, attention.v_proj))
            cross += [keys.transpose(2, 3), values]
        return tuple(cross)


class Step(nn.Module):
    """One id a row through the decoder. Keys and values of the encoder's states are the same for all rows."""

    def __init__(self, model):
        super().__init__()
        decoder = model.model.language_model.decoder
        self.embed, self.positions, self.norm = decoder.embed_tokens, decoder.embed_positions, decoder.layernorm_embedding
        self.layers, self.head = decoder.layers, model.lm_head

    def forward(self, ids, position, cross, own):
        place = torch.nn.functional.embedding(position + self.positions.offset, self.positions.weight)
        x = self.norm(self.embed(ids) + place)  # (rows, 1, d_model)
        present = []
        for n, layer in enumerate(self.layers):
            attention = layer.self_attn
            keys, values = (torch.cat([past, heads(projection(x), attention)], dim=2) for past, projection in
                            zip(own[2 * n:2 * n + 2], (attention.k_proj, attention.v_proj)))
            present += [keys, values]
            attended = scaled_dot_product_attention(heads(attention.q_proj(x), attention), keys, values)
            x = layer.self_attn_layer_norm(x + attention.out_proj(attended.transpose(1, 2).flatten(2)))

            attention = layer.encoder_attn
            # The rows of one product instead of a product for each: (1, heads, rows, head size).
            queries = heads(attention.q_proj(x) * attention.scaling, attention).permute(2, 1, 0, 3)
            attended = (queries @ cross[2 * n]).softmax(-1) @ cross[2 * n + 1]
            x = layer.encoder_attn_layer_norm(x + attention.out_proj(attended.permute(2, 0, 1, 3).flatten(2)))

            x = layer.final_layer_norm(x + layer.fc2(layer.activation_fn(layer.fc1(x))))
        return self.head(x[:, 0]), *present


def heads(x, attention):
    """(rows, tokens, d_model) to (rows, heads, tokens, head size)."""
    return x.unflatten(2, (attention.num_heads, attention.head_dim)).transpose(1, 2)


def graphs(model, prompt):
    """Name, module, example inputs and their dynamic sizes of each graph."""
    text = model.config.text_config
    side, layers, count = 768, text.decoder_layers, text.decoder_attention_heads
    size, generator = text.d_model // count, torch.Generator().manual_seed(1)

    def random(*shape):
        return torch.randn(shape, generator=generator)

    tokens = 577 + prompt
    cross = [tensor for _ in range(layers) for tensor in (random(1, count, size, tokens), random(1, count, tokens, size))]
    own = [random(3, count, 5, size) for _ in range(2 * layers)]
    rows, past = torch.export.Dim("rows"), torch.export.Dim("past")
    yield "vision", Vision(model), (random(1, 3, side, side),), None
    yield "encode", Encode(model), (random(1, 577, text.d_model), torch.arange(5, 5 + prompt)[None]), None
    yield ("step", Step(model), (torch.tensor([[5], [6], [7]]), torch.tensor([5]), cross, own),
           ({0: rows}, None, [None] * len(cross), [{0: rows, 2: past}] * len(own)))


def flat(inputs):
    return [tensor for part in inputs for tensor in (part if isinstance(part, list) else [part])]


def check(path, module, inputs):
    """The largest difference between ONNX Runtime and PyTorch."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    given = flat(inputs)
    assert len(names) == len(given), (names, len(given))
    expected = module(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    got = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, given)})
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=0, atol=1e-3)
    return max(float(np.abs(one - other.numpy()).max()) for one, other in zip(got, expected))


def export(checkpoint, prompt):
    """The folder with the graphs, made if it is not there yet."""
    folder = checkpoint / f"onnx-{prompt}"
    if folder.exists():
        return folder
    unfinished = checkpoint / f"onnx-{prompt}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    model, differences = load(checkpoint), {}
    with torch.no_grad():
        for name, module, inputs, dynamic in graphs(model, prompt):
            path = unfinished / f"{name}.onnx"
            torch.onnx.export(module.eval(), inputs, path, dynamo=True, opset_version=OPSET, dynamic_shapes=dynamic,
                              external_data=True, verbose=False)
            differences[name] = check(path, module, inputs)
            if name == "step":  # The first step: one row and nothing before it.
                first = inputs[0][:1], torch.tensor([0]), inputs[2], [past[:1, :, :0] for past in inputs[3]]
                differences["first step"] = check(path, module, first)
    (unfinished / "differences.json").write_text(json.dumps(differences, indent=1) + "\n")
    unfinished.rename(folder)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--prompt-ids", type=int, required=True, help="ids of the prompt, the ends counted")
    args = parser.parse_args()
    folder = export(args.checkpoint, args.prompt_ids)
    print(folder, (folder / "differences.json").read_text())


if __name__ == "__main__":
    main()
