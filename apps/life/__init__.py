"""A tenant as a whole: suspended and let go on, renamed, put into a file, made from one."""
