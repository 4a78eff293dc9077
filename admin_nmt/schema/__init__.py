"""YAML files with sections: their fields, their types, and one sentence for what is wrong in one."""
