"""What runs look like to people: lists, pictures, where their time went."""
