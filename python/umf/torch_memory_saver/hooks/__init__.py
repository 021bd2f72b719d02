"""How allocations reach the library: ``preload`` or ``torch``."""
