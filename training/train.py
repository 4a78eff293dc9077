"""`admin-nmt train`, as a file that launchers start.

accelerate launch --config_file training/accelerate/ddp.yaml --num_processes 2 training/train.py RECIPE.yaml
"""

import sys

from admin_nmt.cli.app import main

if __name__ == "__main__":
    sys.argv.insert(1, "train")
    main()
