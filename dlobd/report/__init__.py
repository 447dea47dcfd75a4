"""Figures in, text or picture out. A view takes a Run and a stream; what several views show is computed once."""
