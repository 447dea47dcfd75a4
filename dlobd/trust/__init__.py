"""Trust in the result of a run: checks that compare one quantity from two sources. Pure, over a bundle's evidence."""
