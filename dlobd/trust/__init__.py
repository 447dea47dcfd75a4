"""May the result of a run be believed? Checks compare one quantity from two sources. Pure, over a bundle's evidence."""
