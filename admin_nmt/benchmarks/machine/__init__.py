"""`admin-nmt benchmark`: one page a machine, from parts that are measured once and kept."""
