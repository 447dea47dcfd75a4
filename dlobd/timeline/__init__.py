"""From evidence to lanes: which spans follow one another, and which lane a wait is released by. One file a lane."""
