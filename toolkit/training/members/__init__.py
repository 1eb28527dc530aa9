"""Members: what is fitted to some of the tasks, and left others out."""
