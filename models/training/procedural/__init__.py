"""Procedural training pictures: `screen(seed)` is an app screen, `sheet(seed)` a dense page of labels and icons."""
from .layouts import screen
from .sheets import sheet

__all__ = ["screen", "sheet"]
