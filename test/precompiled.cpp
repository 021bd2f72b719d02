// Nothing: its header is the point.
