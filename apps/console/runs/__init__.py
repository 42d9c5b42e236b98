"""A tenant's runs for operators: the list, and all that is known of one of them on a page."""
