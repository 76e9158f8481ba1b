"""Florence-2 in plain PyTorch, under the parameter names of the original checkpoints.

transformers has the same network; this copy exists because training on one CPU core wants two things it does not
give: the token grid kept in channels-last order throughout, and the decoder's cross-attention weights cheaply.
`evaluate.py` loads what is trained here into transformers' own class, so a difference between the two would show.
"""
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

import vocabulary as V

HEAD = 32  # Florence-2 has this head size in every vision stage


@dataclass(frozen=True)
class Layout:
    """Every size of the network; `export.py` writes them to config.json."""

    image: int = 576
    dims: tuple = (32, 64, 128)
    depths: tuple = (1, 1, 2)
    patch: tuple = (9, 3, 3)
    stride: tuple = (6, 2, 2)
    padding: tuple = (2, 1, 1)
    window: int = 12
    d_model: int = 128
    encoder_layers: int = 0
    decoder_layers: int = 3
    heads: int = 4
    ffn: int = 256
    positions: int = 640   # 1 + 24 * 24 cells, and a command
    grid_positions: int = 50
    temporal_positions: int = 100
    vocabulary: int = V.VOCAB
    tied: bool = True      # the output layer is the table of token vectors

    @property
    def grids(self):
        """Side of every stage's grid."""
        side, out = self.image, []
        for kernel, stride, pad in zip(self.patch, self.stride, self.padding):
            side = (side + 2 * pad - kernel) // stride + 1
            out.append(side)
        return out

    @property
    def grid(self):
        return self.grids[-1]


def holder(**parts):
    """A module that only gives its parts a name, where the checkpoint's names have a level that does nothing."""
    module = nn.Module()
    for name, part in parts.items():
        setattr(module, name, part)
    return module


# ------------------------------------------------------------------------------------------------------- vision


class Attention2d(nn.Module):
    """qkv and projection of a vision block; attends inside windows, or between channels."""

    def __init__(self, dim, window):
        super().__init__()
        self.window, self.groups = window, dim // HEAD
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        return self.proj(self.windows(x) if self.window else self.channels(x))

    def windows(self, x):
        batch, height, width, dim = x.shape
        w = self.window
        down, right = -height % w, -width % w
        if down or right:
            x = F.pad(x, (0, 0, 0, right, 0, down))
        rows, columns = x.shape[1] // w, x.shape[2] // w
        x = x.view(batch, rows, w, columns, w, dim).transpose(2, 3).reshape(-1, w * w, dim)
        q, k, v = self.qkv(x).view(-1, w * w, 3, self.groups, HEAD).permute(2, 0, 3, 1, 4)
        # Written out: for windows this small, twice as fast as the fused operation and its backward pass on a CPU.
        x = (torch.softmax((q * HEAD**-0.5) @ k.transpose(-1, -2), -1) @ v).transpose(1, 2)
        x = x.reshape(batch, rows, columns, w, w, dim).transpose(2, 3).reshape(batch, rows * w, columns * w, dim)
        return x[:, :height, :width].contiguous() if down or right else x

    def channels(self, x):
        batch, height, width, dim = x.shape
        n = height * width
        q, k, v = self.qkv(x).view(batch, n, 3, self.groups, HEAD).permute(2, 0, 3, 1, 4)
        weights = torch.softmax((q * n**-0.5).transpose(-1, -2) @ k, -1)
        return (v @ weights.transpose(-1, -2)).transpose(1, 2).reshape(batch, height, width, dim)


class Block(nn.Module):
    """Half of a DaViT block; x is [batch, height, width, channels]."""

    def __init__(self, dim, attention, window):
        super().__init__()
        self.attention = attention
        depthwise = lambda: holder(fn=holder(dw=nn.Conv2d(dim, dim, 3, padding=1, groups=dim)))
        self.conv1, self.conv2 = depthwise(), depthwise()
        setattr(self, attention, holder(norm=nn.LayerNorm(dim), fn=Attention2d(dim, window)))
        net = holder(fc1=nn.Linear(dim, 4 * dim), fc2=nn.Linear(4 * dim, dim))
        self.ffn = holder(norm=nn.LayerNorm(dim), fn=holder(net=net))

    def forward(self, x):
        attention, net = getattr(self, self.attention), self.ffn.fn.net
        x = x + self.depthwise(self.conv1, x)
        x = x + attention.fn(attention.norm(x))
        x = x + self.depthwise(self.conv2, x)
        return x + net.fc2(F.gelu(net.fc1(self.ffn.norm(x))))

    @staticmethod
    def depthwise(conv, x):
        return conv.fn.dw(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class Vision(nn.Module):
    def __init__(self, layout):
        super().__init__()
        self.convs, self.blocks, before = nn.ModuleList(), nn.ModuleList(), 3
        for i, dim in enumerate(layout.dims):
            conv = nn.Conv2d(before, dim, layout.patch[i], layout.stride[i], layout.padding[i])
            self.convs.append(holder(proj=conv, norm=nn.LayerNorm(before if i else dim)))
            self.blocks.append(nn.ModuleList(
                holder(spatial_block=Block(dim, "window_attn", layout.window), channel_block=Block(dim, "channel_attn", 0))
                for _ in range(layout.depths[i])))
            before = dim

    def forward(self, pixels):
        """(last stage, first stage), each [images, height, width, channels]."""
        x, first = pixels.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1), None
        for i, (conv, blocks) in enumerate(zip(self.convs, self.blocks)):
            x = conv.proj((conv.norm(x) if i else x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
            x = x if i else conv.norm(x)
            for block in blocks:
                x = block.channel_block(block.spatial_block(x))
            first = x if first is None else first
        return x, first


# --------------------------------------------------------------------------------------------------------- text


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def join(self, x):
        return self.out_proj(x.transpose(1, 2).flatten(2))

    def forward(self, x, mask):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        return self.join(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))

    def across(self, x, memory):
        """Attention over a `Memory`: (result, weights [commands, heads, ids, states])."""
        commands, length, images = len(x), x.shape[1], len(memory.image)
        grouped = lambda t: t.view(images, -1, *t.shape[1:]).transpose(1, 2).flatten(2, 3)
        apart = lambda t: t.unflatten(2, (commands // images, length)).transpose(1, 2).flatten(0, 1)
        q = self.split(self.q_proj(x)) * (x.shape[-1] // self.heads)**-0.5
        of_image = apart(grouped(q) @ self.split(self.k_proj(memory.image)).transpose(-1, -2))
        of_text = q @ self.split(self.k_proj(memory.text)).transpose(-1, -2) + memory.mask
        shares = torch.softmax(torch.cat([of_image, of_text], -1).float(), -1)
        cells = memory.image.shape[1]
        taken = shares.to(q.dtype)
        out = apart(grouped(taken[..., :cells]) @ self.split(self.v_proj(memory.image)))
        return self.join(out + taken[..., cells:] @ self.split(self.v_proj(memory.text))), shares


@dataclass
class Memory:
    """Encoder states. Those of an image are kept once for all its commands as long as no encoder layer mixes them."""

    image: torch.Tensor  # [images, cells, d_model], or [commands, cells, d_model]
    text: torch.Tensor   # [commands, length, d_model]
    mask: torch.Tensor   # [commands, 1, 1, length], additive


class Layer(nn.Module):
    """A BART layer: norms come after the residual additions."""

    def __init__(self, layout, decoder):
        super().__init__()
        dim = layout.d_model
        self.self_attn, self.self_attn_layer_norm = Attention(dim, layout.heads), nn.LayerNorm(dim)
        if decoder:
            self.encoder_attn, self.encoder_attn_layer_norm = Attention(dim, layout.heads), nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, layout.ffn), nn.Linear(layout.ffn, dim)
        self.final_layer_norm = nn.LayerNorm(dim)

    def forward(self, x, mask, memory=None):
        shares = None
        x = self.self_attn_layer_norm(x + self.self_attn(x, mask))
        if memory is not None:
            seen, shares = self.encoder_attn.across(x, memory)
            x = self.encoder_attn_layer_norm(x + seen)
        return self.final_layer_norm(x + self.fc2(F.gelu(self.fc1(x)))), shares


class Side(nn.Module):
    """Encoder or decoder."""

    def __init__(self, layout, decoder):
        super().__init__()
        self.embed_positions = nn.Embedding(layout.positions + 2, layout.d_model)
        self.layernorm_embedding = nn.LayerNorm(layout.d_model)
        count = layout.decoder_layers if decoder else layout.encoder_layers
        self.layers = nn.ModuleList(Layer(layout, decoder) for _ in range(count))

    def embed(self, x, first=0):
        return self.layernorm_embedding(x + self.embed_positions.weight[2 + first:2 + first + x.shape[1]])


class Pocket(nn.Module):
    def __init__(self, layout=Layout()):
        super().__init__()
        self.layout, dim, channels = layout, layout.d_model, layout.dims[-1]
        self.vision_tower = Vision(layout)
        self.image_projection = nn.Parameter(torch.empty(channels, dim))
        self.image_proj_norm = nn.LayerNorm(dim)
        table = lambda width: nn.Embedding(layout.grid_positions, width)
        self.image_pos_embed = holder(row_embeddings=table(channels // 2), column_embeddings=table(channels - channels // 2))
        self.visual_temporal_embed = nn.Module()
        self.visual_temporal_embed.register_buffer("pos_idx_to_embed", temporal_table(layout.temporal_positions, channels))
        self.language_model = holder(model=holder(
            shared=nn.Embedding(layout.vocabulary, dim), encoder=Side(layout, False), decoder=Side(layout, True)))
        if not layout.tied:
            self.language_model.lm_head = nn.Linear(dim, layout.vocabulary, bias=False)
        initialise(self)

    @property
    def words(self):
        """Token embeddings."""
        return self.language_model.model.shared.weight

    @property
    def output(self):
        """The output layer: the token embeddings themselves, if tied."""
        return self.words if self.layout.tied else self.language_model.lm_head.weight

    def look(self, pixels):
        """Image features [images, 1 + grid * grid, d_model]; the first is the mean."""
        return self.look_closely(pixels)[0]

    def look_closely(self, pixels):
        """Image features, and the first stage [images, height, width, channels], where letters are told apart."""
        x, first = self.vision_tower(pixels)
        batch, side, _, channels = x.shape
        columns = self.image_pos_embed.column_embeddings.weight[:side]
        rows = self.image_pos_embed.row_embeddings.weight[:side]
        place = torch.cat([columns[None].expand(side, -1, -1), rows[:, None].expand(-1, side, -1)], -1)
        x = (x + place + self.visual_temporal_embed.pos_idx_to_embed[0]).view(batch, side * side, channels)
        x = torch.cat([x.mean(1, keepdim=True), x], 1)
        return self.image_proj_norm(x @ self.image_projection), first

    def read(self, features, text):
        """Encoder states; one row of features serves several commands."""
        encoder, cells = self.language_model.model.encoder, features.shape[1]
        mask = torch.zeros(len(text), 1, 1, text.shape[1]).masked_fill_((text == V.PAD)[:, None, None], -1e9)
        image, words = encoder.embed(features), encoder.embed(F.embedding(text, self.words), cells)
        if len(encoder.layers):
            x = torch.cat([image.repeat_interleave(len(text) // len(image), 0), words], 1)
            for layer in encoder.layers:
                x, _ = layer(x, F.pad(mask, (cells, 0)))
            image, words = x[:, :cells], x[:, cells:]
        return Memory(image, words, mask)

    def answer(self, memory, ids):
        """Logits for every position of `ids`, and each layer's cross-attention [commands, heads, ids, states]."""
        decoder, length = self.language_model.model.decoder, ids.shape[1]
        x, shares = decoder.embed(F.embedding(ids, self.words)), []
        causal = torch.full((length, length), -1e9).triu(1)
        for layer in decoder.layers:
            x, weights = layer(x, causal, memory)
            shares.append(weights)
        return (x @ self.output.T).float(), shares


# --------------------------------------------------------------------------------------------------- first values


def temporal_table(count, width):
    angle = torch.arange(count)[:, None] * torch.exp(-math.log(10000.0) * torch.arange(0, width, 2) / width)
    return torch.stack([angle.sin(), angle.cos()], -1).view(count, width)


def fourier(places, width, scale):
    """Smooth code of a place in 0..1; equal codes for the image grid and the location tokens make copying easy."""
    frequency = torch.logspace(math.log10(0.25), math.log10(24.0), width // 2)
    angle = 2 * math.pi * places[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], 1) * scale


@torch.no_grad()
def initialise(model):
    layout = model.layout
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=module.in_features**-0.5 * 0.8)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Conv2d):
            if module.groups > 1:
                nn.init.normal_(module.weight, std=0.15)
            else:
                nn.init.normal_(module.weight, std=module.weight[0].numel()**-0.5)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.05)
    nn.init.orthogonal_(model.image_projection)
    centres = (torch.arange(layout.grid_positions) + 0.5) / layout.grid
    for table in (model.image_pos_embed.row_embeddings, model.image_pos_embed.column_embeddings):
        table.weight.copy_(fourier(centres, table.weight.shape[1], 1.0))
    if layout.vocabulary == V.VOCAB:
        model.words[V.LOCATION:] = fourier((torch.arange(V.BINS) + 0.5) / V.BINS, layout.d_model, 0.1)
