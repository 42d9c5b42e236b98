"""Back-pressure: how busy pools are, how many slots they should have, and what yields or is refused meanwhile."""
