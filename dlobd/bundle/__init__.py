"""A run on disk: its files, their names, their schema and its history, what is removed before they are written.

Here belongs what reads or writes a bundle as such. What its evidence means is `dlobd.attribution`.
"""
