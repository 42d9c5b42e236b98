"""How the console writes times; named by FORMAT_MODULE_PATH."""
